// Contenders of the benches of AllGather+GEMM: all ranks of a virtual cluster with the same shape, random data.
#pragma once

#include "bench_rows.cuh"
#include "gemm_check.cuh"
#include "virtual_cluster.cuh"

#include "device/tile/gemm.cuh"
#include "device/tile/tile_launch.cuh"
#include "ops/ag_gemm/device_launch.cuh"
#include "ops/ag_gemm/device_parameters.cuh"

#include <cublas_v2.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

namespace tilewire {

// 2 nodes x 2 ranks on one GPU, each with a quarter of the SMs that the wire leaves, and of a 400 Gb/s port.
inline const EmulatedOptions kBenchNetwork{.bandwidth_bytes_per_s = 12.5e9, .latency = std::chrono::microseconds(5)};

class FusedBench {
 public:
  // Rows of all ranks together, columns of each.
  FusedBench(const BenchSize& size, const std::vector<int32_t>& widths)
      : size_(size),
        node_(
            {.widths = widths, .max_chunks = 8192, .half_bytes = size.rows * size.depth * 2, .network = kBenchNetwork}),
        problem_{.rows = std::vector<int64_t>(static_cast<size_t>(node_.ranks()), size.rows / node_.ranks()),
                 .k = size.depth,
                 .dtype = DataType::bf16,
                 .cols = {size.cols}} {
    const int32_t ranks_per_gpu = (node_.ranks() + gpus_of_clusters - 1) / gpus_of_clusters;
    sms_ = (sm_count() - (node_.topology().nodes > 1 ? kWireSms : 0)) / ranks_per_gpu / 2 * 2;
    for (int32_t r = 0; r < node_.ranks(); ++r) add_rank(r, ranks_per_gpu > 1);
    for (int32_t r = 0; r < node_.ranks(); ++r) {
      node_.use(r);
      check_cuda(cudaDeviceSynchronize(), "preparing");
    }
  }
  FusedBench(const FusedBench&) = delete;
  FusedBench& operator=(const FusedBench&) = delete;
  ~FusedBench() {
    for (const Member& rank : ranks_) cublasDestroy(rank.cublas);
  }

  const BenchSize& size() const { return size_; }
  const ag_gemm::Problem& problem() const { return problem_; }
  PlanContext context() const {
    PlanContext context = node_.context(0);
    context.workers = sms_;
    return context;
  }

  // cuBLAS of all ranks at once, each with gathered data and as many SMs as the kernel has.
  TimeUs cublas() {
    return [this](int count) { return time_us(count, [&](int32_t r) { multiply(at(r)); }); };
  }
  // The same with the plain kernel.
  TimeUs plain() {
    return [this](int count) { return time_us(count, [&](int32_t r) { at(r).gemm->launch(node_.stream(r)); }); };
  }
  TimeUs fused(const ag_gemm::FusedPlan& plan) {
    std::deque<ag_gemm::FusedKernel>& kernels = kernels_.emplace_back();
    for (int32_t r = 0; r < node_.ranks(); ++r) {
      node_.use(r);
      PlanContext context = this->context();
      context.me = Rank{r};
      kernels.emplace_back(problem_, plan, context, node_.rank(r, kTimeoutNs), false);
    }
    return [this, &kernels](int count) {
      node_.start_wire();
      const double us = time_us(count, [&](int32_t r) { launch(kernels[static_cast<size_t>(r)], r); });
      node_.stop_wire();
      return us;
    };
  }
  // Throws if a wait has expired.
  void check() const {
    for (int32_t r = 0; r < node_.ranks(); ++r) {
      if (node_.fault(r).state != FaultRecord::kNone) throw std::runtime_error("a wait expired in the bench");
    }
  }

 private:
  static constexpr int32_t kWireSms = 4;
  static constexpr uint64_t kTimeoutNs = 2'000'000'000;
  using Bf16 = __nv_bfloat16;

  struct Member {
    DeviceBuffer<Bf16> whole, a, b, d;
    cublasHandle_t cublas = nullptr;
    std::unique_ptr<Gemm> gemm = nullptr;
  };

  Member& at(int32_t r) { return ranks_[static_cast<size_t>(r)]; }
  DeviceMatrix matrix(const DeviceBuffer<Bf16>& of, int64_t rows, int64_t cols) const {
    return {of.data(), rows, cols, cols * 2, DataType::bf16};
  }
  void fill(const DeviceBuffer<Bf16>& to, int64_t rows, uint32_t seed) const {
    fill_matrix<<<256, 256>>>(to.data(), rows, size_.depth, size_.depth, Content::random, seed);
  }
  void add_rank(int32_t r, bool is_shared) {
    node_.use(r);
    const int64_t rows = problem_.rows[0];
    Member& rank = ranks_.emplace_back(
        Member{DeviceBuffer<Bf16>(size_.rows * size_.depth), DeviceBuffer<Bf16>(rows * size_.depth),
               DeviceBuffer<Bf16>(size_.cols * size_.depth), DeviceBuffer<Bf16>(size_.rows * size_.cols)});
    fill(rank.whole, size_.rows, 9);
    fill(rank.a, rows, static_cast<uint32_t>(r));
    fill(rank.b, size_.cols, static_cast<uint32_t>(100 + r));
    if (cublasCreate(&rank.cublas) != CUBLAS_STATUS_SUCCESS) throw std::runtime_error("no cuBLAS");
    cublasSetStream(rank.cublas, node_.stream(r));
    if (is_shared) cublasSetSmCountTarget(rank.cublas, sms_);
    const GemmProblem whole{matrix(rank.whole, size_.rows, size_.depth), matrix(rank.b, size_.cols, size_.depth),
                            matrix(rank.d, size_.rows, size_.cols)};
    rank.gemm = std::make_unique<Gemm>(whole, nullptr, sms_);
  }
  void launch(const ag_gemm::FusedKernel& kernel, int32_t r) {
    const Member& rank = at(r);
    const DeviceMatrix b = matrix(rank.b, size_.cols, size_.depth), d = matrix(rank.d, size_.rows, size_.cols);
    kernel.launch(1, {.a = matrix(rank.a, problem_.rows[0], size_.depth), .b = {&b, 1}, .out = {&d, 1}, .bias = {}},
                  node_.stream(r));
  }
  void multiply(const Member& rank) const {
    const float one = 1, zero = 0;
    const auto n = static_cast<int>(size_.cols), m = static_cast<int>(size_.rows), k = static_cast<int>(size_.depth);
    if (cublasGemmEx(rank.cublas, CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one, rank.b.data(), CUDA_R_16BF, k,
                     rank.whole.data(), CUDA_R_16BF, k, &zero, rank.d.data(), CUDA_R_16BF, n, CUBLAS_COMPUTE_32F,
                     CUBLAS_GEMM_DEFAULT) != CUBLAS_STATUS_SUCCESS) {
      throw std::runtime_error("cuBLAS failed");
    }
  }
  // Microseconds a call of all ranks, `count` of them behind each other.
  double time_us(int count, const std::function<void(int32_t rank)>& launch_one) {
    node_.wait();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) {
      for (int32_t r = 0; r < node_.ranks(); ++r) {
        node_.use(r);
        launch_one(r);
      }
    }
    node_.wait();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / count;
  }

  BenchSize size_;
  VirtualCluster node_;
  ag_gemm::Problem problem_;
  int32_t sms_ = 0;
  std::deque<Member> ranks_;
  std::deque<std::deque<ag_gemm::FusedKernel>> kernels_;  // of each plan, by rank
};

}  // namespace tilewire
