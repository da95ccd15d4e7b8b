// The constants of the cost model, for planners and for the clocked simulation: what a rank's hardware does. Seconds
// and bytes a second. Defaults fit CPU ranks on one small machine; a tuner or a user may set them, and all ranks must
// use the same. What plans can be asked for by name is in api/machine_numbers.cc.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tilewire {

struct Machine {
  double worker_flops = 2.4e10;      // of one compute worker
  double copy_bytes_per_s = 6e9;     // within a rank, for each agent that reads, writes or copies
  double node_bytes_per_s = 5e9;     // out of one rank to its local peers, all together; into one rank likewise
  double network_bytes_per_s = 4e9;  // out of one rank's NICs; into them likewise
  double network_latency_s = 20e-6;
  double node_latency_s = 5e-6;  // of a flag between ranks of a node
  double step_s = 3e-6;          // a piece of work of any role: its wait, its signal
  double command_s = 1e-6;       // of a proxy, for each command and each arrival
  int32_t ranks_per_gpu = 0;     // that share its memory and its cache; 0: ranks are of the CPU
};

// A GPU rank: an H200 whose workers are its SMs, its peers behind NVLink, a NIC of 400 Gbit/s for each. The worker's rate
// is that of an SM's tensor cores at the clock it keeps under load; what tiles cost beside that is in
// device/tile/tile_form.h. Rates of copies and links were measured (docs/results), latencies of the network were not.
inline constexpr int32_t kH200Workers = 132;
inline constexpr Machine kH200Machine{.worker_flops = 6.96e12,
                                      .copy_bytes_per_s = 4e11,
                                      .node_bytes_per_s = 3.6e11,
                                      .network_bytes_per_s = 4.5e10,
                                      .network_latency_s = 6e-6,
                                      .node_latency_s = 1.5e-6,
                                      .step_s = 0.5e-6,
                                      .command_s = 0.5e-6,
                                      .ranks_per_gpu = 1};

// GPU ranks of which so many share a GPU. Then a network between them is played by a kernel that takes a few
// microseconds for each command (docs/virtual-cluster.md), and flags wait behind what the other ranks do.
constexpr Machine gpu_machine(int32_t ranks_per_gpu) {
  Machine machine = kH200Machine;
  machine.ranks_per_gpu = ranks_per_gpu;
  if (ranks_per_gpu > 1) {
    machine.network_latency_s = 20e-6;
    machine.step_s = 1e-6;
    machine.command_s = 3e-6;
  }
  return machine;
}

// One direction of one port: transfers go one after the other, in the order in which they are taken.
struct Lane {
  double free_s = 0;
  double take(double begin_s, double seconds) {
    free_s = std::max(free_s, begin_s) + seconds;
    return free_s;
  }
};

// What a tile [rows, cols] over depth k costs, in flops: its arithmetic, and loading both operands, an element of which
// takes as long as kOperandFlops (a smaller tile loads more for the same arithmetic).
inline constexpr double kOperandFlops = 24;
constexpr double gemm_tile_flops(int64_t rows, int64_t cols, int64_t k) {
  const auto m = static_cast<double>(rows), n = static_cast<double>(cols);
  return (2 * m * n + kOperandFlops * (m + n)) * static_cast<double>(k);
}

}  // namespace tilewire
