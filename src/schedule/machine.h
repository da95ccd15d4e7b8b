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
  int32_t ranks_per_gpu = 1;     // that share its memory and its cache
};

// A GPU rank: an H200 whose workers are its SMs, its peers behind NVLink, a NIC of 400 Gbit/s for each. The worker's rate
// is what tiles of 128 x 256 were measured at (docs/results), with what loading their operands counts here. All others
// are estimates from data sheets, of which nothing was measured yet.
inline constexpr int32_t kH200Workers = 132;
inline constexpr Machine kH200Machine{.worker_flops = 6.1e12,
                                      .copy_bytes_per_s = 4e11,
                                      .node_bytes_per_s = 4e11,
                                      .network_bytes_per_s = 4.5e10,
                                      .network_latency_s = 6e-6,
                                      .node_latency_s = 1.5e-6,
                                      .step_s = 0.5e-6,
                                      .command_s = 0.5e-6};

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
