// The fused AllGather+GEMM: ag_gemm_gpu_bench [--gpus | --nodes] [FILE.json COMMIT DATE]. Random data, medians over
// rounds in which baseline and fused kernel alternate. With --gpus a rank a GPU, over their links; with --nodes 2 nodes x
// 2 ranks on one GPU, joined by the emulated wire, against the floor; else on one GPU without a network:
//
// One rank against cuBLAS: what the machinery of a call costs (own copy, flags, begin and end), with SMs that only
// push. Virtual nodes of 2 and 4 ranks on SMs / ranks each, all at once, against cuBLAS on as many SMs a rank that
// finds its data gathered. That shows the cost of the roles beside each other and of waiting; it shows nothing of links
// between GPUs, and all ranks share one memory, one cache and one power limit.
#include "bare_transfer.cuh"
#include "bench_rows.cuh"
#include "gemm_check.cuh"
#include "gpu_program.cuh"
#include "virtual_cluster.cuh"

#include "device/tile/tile_launch.cuh"
#include "ops/ag_gemm/device_launch.cuh"
#include "ops/ag_gemm/device_parameters.cuh"

#include <cublas_v2.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>

namespace tilewire {
namespace {

constexpr Turns kTurns{.rounds = 7, .block_us = 6000, .least = 5, .most = 60};
constexpr uint64_t kTimeoutNs = 2'000'000'000;
using Bf16 = __nv_bfloat16;

// Rows of all ranks together, columns of each.
constexpr BenchSize kSizes[] = {{8192, 8192, 8192}, {8192, 3584, 8192},  {8192, 4096, 4096}, {2048, 8192, 8192},
                                {4096, 4096, 4096}, {8192, 28672, 1024}, {8192, 4096, 512}};
// With GPUs of their own: rows of all, columns of each.
constexpr BenchSize kLinkSizes[] = {{8192, 8192, 8192}, {8192, 4096, 8192},  {8192, 2048, 8192}, {8192, 1024, 8192},
                                    {8192, 512, 8192},  {2048, 14336, 4096}, {2048, 4096, 8192}, {2048, 2048, 4096},
                                    {512, 4096, 4096},  {4096, 2048, 4096}};
constexpr BenchSize kNodeSizes[] = {{8192, 8192, 8192}, {8192, 4096, 4096}, {2048, 4096, 8192}, {8192, 4096, 1024}};

constexpr int64_t kSpreadChunkBytes = 32768;  // of chunks that warps beside the tiles copy

// Of chunks that go over the network: fewer bytes a chunk where there are few.
constexpr int64_t kNetworkChunkBytes = 65536, kMostNetworkChunkBytes = 262144;
int64_t network_chunk_bytes(int64_t shard_bytes) {
  return std::clamp(shard_bytes / 64, kNetworkChunkBytes, kMostNetworkChunkBytes);
}

struct Split {
  int32_t push_ctas, raster_rows;  // 0: as planned
  bool own_in_place = true;
  uint32_t pace_clocks = 0;
  bool is_fused = true;
};

// 2 nodes x 2 ranks on one GPU, each with a quarter of the SMs that the wire leaves, and of a 400 Gb/s port.
const EmulatedOptions kNetwork{.bandwidth_bytes_per_s = 12.5e9, .latency = std::chrono::microseconds(5)};
constexpr int32_t kWireSms = 4;

// All ranks of a node with the same shape, and cuBLAS for each.
class Bench {
 public:
  Bench(const BenchSize& size, const std::vector<int32_t>& widths, const Split& split)
      : size_(size),
        node_({.widths = widths, .max_chunks = 8192, .half_bytes = size.rows * size.depth * 2, .network = kNetwork}),
        whole_() {
    const int32_t ranks = node_.ranks();
    const std::vector<int64_t> rows(static_cast<size_t>(ranks), size.rows / ranks);
    const ag_gemm::Problem problem{.rows = rows, .k = size.depth, .dtype = DataType::bf16, .cols = {size.cols}};
    const int32_t ranks_per_gpu = (ranks + gpus_of_clusters - 1) / gpus_of_clusters;
    const bool has_network = node_.topology().nodes > 1;
    const int32_t sms = (sm_count() - (has_network ? kWireSms : 0)) / ranks_per_gpu / 2 * 2;
    PlanContext context = node_.context(0);
    context.workers = sms;
    ag_gemm::FusedPlan plan = ag_gemm::make_fused_plan(problem, context, split.push_ctas).choice;
    plan.choice.chunk_rows =
        split.push_ctas > 0
            ? 128
            : std::max<int64_t>(
                  1, (has_network ? network_chunk_bytes(size.rows * size.depth * 2 / ranks) : kSpreadChunkBytes) /
                         (2 * size.depth));
    if (split.raster_rows > 0) plan.choice.raster_rows = split.raster_rows;
    plan.own_in_place = split.own_in_place;
    plan.pace_clocks = split.pace_clocks;
    plan.choice.is_fused = split.is_fused;
    for (int32_t r = 0; r < ranks; ++r) {
      node_.use(r);
      whole_.emplace_back(size.rows * size.depth);
      fill(whole_.back(), size.rows, 9);
      kernels_.emplace_back(problem, plan, node_.context(r), node_.rank(r, kTimeoutNs), false);
      a_.emplace_back(rows[0] * size.depth);
      b_.emplace_back(size.cols * size.depth);
      d_.emplace_back(size.rows * size.cols);
      fill(a_.back(), rows[0], static_cast<uint32_t>(r));
      fill(b_.back(), size.cols, static_cast<uint32_t>(100 + r));
      if (cublasCreate(&handles_.emplace_back()) != CUBLAS_STATUS_SUCCESS) throw std::runtime_error("no cuBLAS");
      cublasSetStream(handles_.back(), node_.stream(r));
      if (ranks_per_gpu > 1) cublasSetSmCountTarget(handles_.back(), sms);
    }
    for (int32_t r = 0; r < ranks; ++r) {
      node_.use(r);
      check_cuda(cudaDeviceSynchronize(), "preparing");
    }
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() {
    for (cublasHandle_t handle : handles_) cublasDestroy(handle);
  }

  BenchRow measure() {
    const auto cublas_us = [&](int count) { return time_us(count, [&] { launch_cublas(); }); };
    const auto fused_us = [&](int count) {
      node_.start_wire();
      const double us = time_us(count, [&] { launch_fused(); });
      node_.stop_wire();
      return us;
    };
    const Comparison found = compare_in_turns(kTurns, cublas_us, fused_us);
    for (int32_t r = 0; r < node_.ranks(); ++r) {
      if (node_.fault(r).state != FaultRecord::kNone) throw std::runtime_error("a wait expired in the bench");
    }
    return {size_.text(), kernels_[0].form().name, found};
  }

 private:
  void fill(const DeviceBuffer<Bf16>& to, int64_t rows, uint32_t seed) {
    fill_matrix<<<256, 256>>>(to.data(), rows, size_.depth, size_.depth, Content::random, seed);
  }
  void launch_fused() {
    for (size_t r = 0; r < kernels_.size(); ++r) {
      node_.use(static_cast<int32_t>(r));
      const int64_t pitch = size_.depth * 2;
      const DeviceMatrix b{b_[r].data(), size_.cols, size_.depth, pitch, DataType::bf16};
      const DeviceMatrix d{d_[r].data(), size_.rows, size_.cols, size_.cols * 2, DataType::bf16};
      const DeviceMatrix a{a_[r].data(), size_.rows / node_.ranks(), size_.depth, pitch, DataType::bf16};
      kernels_[r].launch(1, {.a = a, .b = {&b, 1}, .out = {&d, 1}, .bias = {}}, node_.stream(static_cast<int32_t>(r)));
    }
  }
  void launch_cublas() {
    const float one = 1, zero = 0;
    for (size_t r = 0; r < kernels_.size(); ++r) {
      node_.use(static_cast<int32_t>(r));
      const auto n = static_cast<int>(size_.cols), m = static_cast<int>(size_.rows), k = static_cast<int>(size_.depth);
      if (cublasGemmEx(handles_[r], CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one, b_[r].data(), CUDA_R_16BF, k,
                       whole_[r].data(), CUDA_R_16BF, k, &zero, d_[r].data(), CUDA_R_16BF, n, CUBLAS_COMPUTE_32F,
                       CUBLAS_GEMM_DEFAULT) != CUBLAS_STATUS_SUCCESS) {
        throw std::runtime_error("cuBLAS failed");
      }
    }
  }
  // Microseconds a call of all ranks, `count` of them behind each other.
  double time_us(int count, const std::function<void()>& launch) {
    node_.wait();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) launch();
    node_.wait();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / count;
  }

  BenchSize size_;
  VirtualCluster node_;
  std::vector<ag_gemm::FusedKernel> kernels_;
  std::vector<DeviceBuffer<Bf16>> whole_, a_, b_, d_;
  std::vector<cublasHandle_t> handles_;
};

void print(const BenchRow& r) {
  std::printf("%-44s %-20s %9.1f us   baseline %9.1f us   ratio %.3f (%.3f to %.3f)\n", r.shape.c_str(), r.form.c_str(),
              r.found.ours_us, r.found.baseline_us, r.found.ratio, r.found.low, r.found.high);
  std::fflush(stdout);
}

// Microseconds in which the wire moves all shards when nothing else runs: the rate of several calls' shards in a row, so
// without its latency.
double bare_transfer_us(const BenchSize& size, const std::vector<int32_t>& widths) {
  constexpr int64_t kCalls = 4;
  VirtualCluster cluster(
      {.widths = widths, .max_chunks = 8192, .half_bytes = size.rows * size.depth * 2, .network = kNetwork});
  const int64_t shard_bytes = size.rows * size.depth * 2 / cluster.ranks();
  BareTransfer transfer(cluster, shard_bytes, network_chunk_bytes(shard_bytes));
  std::vector<double> us;
  for (Epoch first = 1; us.size() < 5; first += kCalls) {
    cluster.start_wire();
    us.push_back(transfer.run_us(first, kCalls) / kCalls);
    cluster.stop_wire();
  }
  return median(us);
}

// The baseline becomes the longer one of computing and moving.
void hold_against_floor(double move_us, Comparison& found) {
  if (move_us <= found.baseline_us) return;
  const double change = move_us / found.baseline_us;
  found.baseline_us = move_us;
  found.ratio *= change;
  found.low *= change;
  found.high *= change;
}

int run(int count, char** words) {
  const std::string mode = count > 1 ? words[1] : "";
  const bool has_links = mode == "--gpus", has_nodes = mode == "--nodes";
  if (has_links) spread_over_all_gpus();
  if (has_links || has_nodes) {
    ++words;
    --count;
  }
  const BenchFile file{has_links   ? "fused_nvlink"
                       : has_nodes ? "fused_vs_floor"
                                   : "fused_virtual_node",
                       has_nodes ? "max(cublasGemmEx with data gathered beforehand, bare transfer)"
                                 : "cublasGemmEx, data gathered beforehand"};
  std::vector<BenchRow> rows;
  const auto add = [&](const BenchSize& size, const std::vector<int32_t>& widths, Split split) {
    rows.push_back(Bench(size, widths, split).measure());
    std::string ranks;
    for (const int32_t width : widths) ranks += (ranks.empty() ? "" : "+") + std::to_string(width);
    if (widths.size() > 1) hold_against_floor(bare_transfer_us(size, widths), rows.back().found);
    rows.back().shape += ", ranks " + ranks + ", push " + std::to_string(split.push_ctas) + ", raster " +
                         std::to_string(split.raster_rows) + (split.own_in_place ? "" : ", own copy") +
                         (split.is_fused ? "" : ", unfused") +
                         (split.pace_clocks > 0 ? ", pace " + std::to_string(split.pace_clocks) : "");
    print(rows.back());
    if (count >= 4) write_json(words[1], words[2], words[3], file, rows);
  };
  for (const BenchSize& size : kLinkSizes) {
    if (!has_links) break;
    for (const Split split : {Split{0, 1}, Split{0, 1, true, 2500}, Split{0, 1, true, 3000}, Split{8, 1}}) {
      add(size, {gpus_of_clusters}, split);
    }
  }
  for (const int64_t m : {2048, 8192}) {
    for (const int64_t k : {4096, 8192}) {
      for (const int64_t n : {2048, 3584, 4096, 8192, 14336}) {
        if (!has_nodes) break;
        for (const Split split : {Split{0, 0}, Split{0, 0, true, 0, false}}) add({m, n, k}, {2, 2}, split);
      }
    }
  }
  if (has_links || has_nodes) return 0;
  for (const BenchSize& size : kSizes) {
    for (const Split split : {Split{0, 8}, Split{0, 2}, Split{2, 8}, Split{4, 8, false}}) add(size, {1}, split);
  }
  for (const int32_t ranks : {2, 4}) {
    for (const BenchSize& size : kNodeSizes) {
      for (const Split split : {Split{0, 1}, Split{0, 4}, Split{2, 1}, Split{4, 1}}) add(size, {ranks}, split);
    }
  }
  return 0;
}

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  tilewire::prepare_for_waiting_kernels();
  return tilewire::run_gpu_program([&] { return tilewire::run(count, words); });
}
