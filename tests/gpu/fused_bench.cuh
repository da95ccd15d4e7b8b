// Contenders of the benches of fused kernels, and what is measured alike of all of them: all ranks of a virtual cluster
// with the same shape, random data. Traits are those of an op:
//   kOp, kWhole (what multiplies, and where), kUnfused (what the unfused sequence does)
//   Problem, Plan, Kernel
//   Problem problem(size, ranks), int64_t half_bytes(size, widths)
//   PlanOf<Plan> make_plan(problem, context); bool is_fused(plan); const char* form(plan)
//   int64_t sent_bytes(size, ranks), chunk_bytes(size, plan)     what a rank sends to one of each other node, in chunks
//   more(plan)                                                  further numbers of a row
//   Kernel::Operands operands(operands of the bench)
//   role_names()                                                as in traces
#pragma once

#include "bare_transfer.cuh"
#include "bench_rows.cuh"
#include "gemm_check.cuh"
#include "trace_buffer.cuh"
#include "virtual_cluster.cuh"

#include "device/tile/gemm.cuh"
#include "device/tile/tile_launch.cuh"
#include <cublas_v2.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

namespace tilewire {

// 2 nodes x 2 ranks on one GPU, each with a quarter of the SMs that the wire leaves, and of a 400 Gb/s port.
constexpr int32_t kBenchChunks = 8192;  // the flags have room for
inline const EmulatedOptions kBenchNetwork{.bandwidth_bytes_per_s = 12.5e9, .latency = std::chrono::microseconds(5)};

// Of a rank. `whole`: the left operand of the whole product; `shard`: its first rows, as many as a rank's part.
struct BenchOperands {
  DeviceMatrix whole, shard, b, d;
};

// The ranks of a cluster and their kernels, for a problem of any op.
template <class PlanOfOp, class KernelOfOp>
class BenchRanks {
 public:
  using Plan = PlanOfOp;
  using Kernel = KernelOfOp;
  using Problem = typename Kernel::Problem;

  BenchRanks(const BenchRanks&) = delete;
  BenchRanks& operator=(const BenchRanks&) = delete;
  virtual ~BenchRanks() {
    for (const cublasHandle_t handle : cublas_) cublasDestroy(handle);
  }

  const Problem& problem() const { return problem_; }
  PlanContext context(int32_t r = 0) const {
    PlanContext context = node_.context(r);
    context.workers = sms_;
    return context;
  }

  TimeUs fused(const Plan& plan) {
    const std::deque<Kernel>& kernels = add_kernels(plan);
    return [this, &kernels](int count) {
      node_.start_wire();
      const double us = time_us(count, [&](int32_t r) { launch(kernels, r); });
      node_.stop_wire();
      return us;
    };
  }
  // What the ranks note in one of several calls in a row.
  std::vector<NotedWorks> traced(const Plan& plan) {
    constexpr uint32_t kNotes = 1024;
    constexpr int kCalls = 4;
    fused(plan)(kCalls);
    const std::deque<Kernel>& kernels = kernels_.back();
    std::deque<TraceBuffer> buffers;
    for (int32_t r = 0; r < node_.ranks(); ++r) {
      node_.use(r);
      buffers.emplace_back(kernels[static_cast<size_t>(r)].ctas(), kNotes);
    }
    node_.start_wire();
    for (int call = 0; call < kCalls; ++call) {
      for (int32_t r = 0; r < node_.ranks(); ++r) {
        node_.use(r);
        const Kernel& kernel = kernels[static_cast<size_t>(r)];
        auto parameters = kernel.parameters(1, operands(r));
        if (call == kCalls / 2) parameters.call.trace = buffers[static_cast<size_t>(r)].view();
        kernel.launch(parameters, node_.stream(r));
      }
    }
    node_.wait();
    node_.stop_wire();
    std::vector<NotedWorks> noted;
    for (const TraceBuffer& buffer : buffers) noted.push_back(buffer.noted());
    return noted;
  }
  // Throws if a wait has expired.
  void check() const {
    for (int32_t r = 0; r < node_.ranks(); ++r) {
      if (node_.fault(r).state != FaultRecord::kNone) throw std::runtime_error("a wait expired in the bench");
    }
  }

 protected:
  using Bf16 = __nv_bfloat16;

  BenchRanks(const std::vector<int32_t>& widths, int64_t half_bytes, Problem problem, bool is_b_n_major = false)
      : node_({.widths = widths, .max_chunks = kBenchChunks, .half_bytes = half_bytes, .network = kBenchNetwork}),
        problem_(std::move(problem)),
        is_b_n_major_(is_b_n_major) {
    const int32_t ranks_per_gpu = (node_.ranks() + gpus_of_clusters - 1) / gpus_of_clusters;
    sms_ = (sm_count() - (node_.topology().nodes > 1 ? kWireSms : 0)) / ranks_per_gpu / 2 * 2;
    for (int32_t r = 0; r < node_.ranks(); ++r) {
      node_.use(r);
      if (cublasCreate(&cublas_.emplace_back()) != CUBLAS_STATUS_SUCCESS) throw std::runtime_error("no cuBLAS");
      cublasSetStream(cublas_.back(), node_.stream(r));
      if (ranks_per_gpu > 1) cublasSetSmCountTarget(cublas_.back(), sms_);
    }
  }

  virtual typename Kernel::Operands operands(int32_t r) const = 0;

  const std::deque<Kernel>& add_kernels(const Plan& plan) {
    std::deque<Kernel>& kernels = kernels_.emplace_back();
    for (int32_t r = 0; r < node_.ranks(); ++r) {
      node_.use(r);
      kernels.emplace_back(problem_, plan, context(r), node_.rank(r, kTimeoutNs), is_b_n_major_);
    }
    return kernels;
  }
  void launch(const std::deque<Kernel>& kernels, int32_t r) const {
    kernels[static_cast<size_t>(r)].launch(1, operands(r), node_.stream(r));
  }
  // c = a * b, whose rows are those of c's columns where it is not n-major.
  void multiply(int32_t r, const DeviceMatrix& a, const DeviceMatrix& b, const DeviceMatrix& c) const {
    const float one = 1, zero = 0;
    const auto pitch = [](const DeviceMatrix& of) { return static_cast<int>(of.pitch_bytes / 2); };
    const auto n = static_cast<int>(c.cols), m = static_cast<int>(c.rows), k = static_cast<int>(a.cols);
    if (cublasGemmEx(cublas_[static_cast<size_t>(r)], is_b_n_major_ ? CUBLAS_OP_N : CUBLAS_OP_T, CUBLAS_OP_N, n, m, k,
                     &one, b.data, CUDA_R_16BF, pitch(b), a.data, CUDA_R_16BF, pitch(a), &zero,
                     const_cast<void*>(c.data), CUDA_R_16BF, pitch(c), CUBLAS_COMPUTE_32F,
                     CUBLAS_GEMM_DEFAULT) != CUBLAS_STATUS_SUCCESS) {
      throw std::runtime_error("cuBLAS failed");
    }
  }
  // Microseconds a call of all ranks, `count` of them behind each other.
  double time_us(int count, const std::function<void(int32_t rank)>& launch_one) const {
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
  void finish_preparing() const {
    for (int32_t r = 0; r < node_.ranks(); ++r) {
      node_.use(r);
      check_cuda(cudaDeviceSynchronize(), "preparing");
    }
  }

  VirtualCluster node_;
  Problem problem_;
  bool is_b_n_major_;
  int32_t sms_ = 0;

 private:
  static constexpr int32_t kWireSms = 4;
  static constexpr uint64_t kTimeoutNs = 2'000'000'000;

  std::vector<cublasHandle_t> cublas_;
  std::deque<std::deque<Kernel>> kernels_;  // of each plan, by rank
};

template <class Traits>
class FusedBench : public BenchRanks<typename Traits::Plan, typename Traits::Kernel> {
  using Base = BenchRanks<typename Traits::Plan, typename Traits::Kernel>;
  using Base::node_;
  using Base::sms_;
  using typename Base::Bf16;

 public:
  using Size = BenchSize;
  using typename Base::Kernel;
  using typename Base::Plan;

  // Rows of all ranks together, columns of each.
  FusedBench(const BenchSize& size, const std::vector<int32_t>& widths)
      : Base(widths, Traits::half_bytes(size, widths),
             Traits::problem(size, std::accumulate(widths.begin(), widths.end(), 0))),
        size_(size) {
    for (int32_t r = 0; r < node_.ranks(); ++r) add_rank(r);
    this->finish_preparing();
  }

  const BenchSize& size() const { return size_; }
  int64_t sent_bytes() const { return Traits::sent_bytes(size_, node_.ranks()); }
  int64_t chunk_bytes(const Plan& plan) const { return Traits::chunk_bytes(size_, plan); }

  // cuBLAS of all ranks at once, each with gathered data and as many SMs as the kernel has.
  TimeUs cublas() {
    return [this](int count) {
      return this->time_us(count, [&](int32_t r) {
        const BenchOperands& o = at(r).operands;
        this->multiply(r, o.whole, o.b, o.d);
      });
    };
  }
  // The same with the plain kernel.
  TimeUs plain() {
    return [this](int count) { return this->time_us(count, [&](int32_t r) { at(r).gemm->launch(node_.stream(r)); }); };
  }

 private:
  struct Member {
    DeviceBuffer<Bf16> whole, shard, b, d;
    std::unique_ptr<Gemm> gemm = nullptr;
    BenchOperands operands{};  // which Operands of the op may point into
  };

  const Member& at(int32_t r) const { return ranks_[static_cast<size_t>(r)]; }
  DeviceMatrix matrix(const DeviceBuffer<Bf16>& of, int64_t rows, int64_t cols) const {
    return {of.data(), rows, cols, cols * 2, DataType::bf16};
  }
  void fill(const DeviceBuffer<Bf16>& to, int64_t rows, uint32_t seed) const {
    fill_matrix<<<256, 256>>>(to.data(), rows, size_.depth, size_.depth, MatrixContent::random, seed);
  }
  void add_rank(int32_t r) {
    node_.use(r);
    const int64_t rows = size_.rows / node_.ranks();
    Member& rank = ranks_.emplace_back(
        Member{DeviceBuffer<Bf16>(size_.rows * size_.depth), DeviceBuffer<Bf16>(rows * size_.depth),
               DeviceBuffer<Bf16>(size_.cols * size_.depth), DeviceBuffer<Bf16>(size_.rows * size_.cols)});
    fill(rank.whole, size_.rows, 9 + static_cast<uint32_t>(r));
    fill(rank.shard, rows, static_cast<uint32_t>(r));
    fill(rank.b, size_.cols, static_cast<uint32_t>(100 + r));
    rank.operands = {.whole = matrix(rank.whole, size_.rows, size_.depth),
                     .shard = matrix(rank.shard, rows, size_.depth),
                     .b = matrix(rank.b, size_.cols, size_.depth),
                     .d = matrix(rank.d, size_.rows, size_.cols)};
    const GemmProblem whole{rank.operands.whole, rank.operands.b, rank.operands.d};
    rank.gemm = std::make_unique<Gemm>(whole, nullptr, sms_);
  }
  typename Kernel::Operands operands(int32_t r) const override { return Traits::operands(at(r).operands); }

  BenchSize size_;
  std::deque<Member> ranks_;
};

// The rows of a bench, printed and kept.
class Rows {
 public:
  // Words: FILE.json COMMIT DATE, or none of them.
  Rows(BenchFile file, char** words) : file_(std::move(file)), words_(words) {}

  void add(BenchRow row) {
    std::printf("%-20s %-44s %-20s %9.1f us   baseline %9.1f us   ratio %.3f (%.3f to %.3f)\n",
                row.own.bench.empty() ? file_.bench.c_str() : row.own.bench.c_str(), row.shape.c_str(),
                row.form.c_str(), row.found.ours_us, row.found.baseline_us, row.found.ratio, row.found.low,
                row.found.high);
    std::fflush(stdout);
    rows_.push_back(std::move(row));
    if (words_ != nullptr) write_json(words_[0], words_[1], words_[2], file_, rows_);
  }
  void print_mean(const std::string& bench) const {
    double log_sum = 0, worst = 1e9;
    int count = 0;
    for (const BenchRow& row : rows_) {
      if (row.own.bench != bench) continue;
      log_sum += std::log(row.found.ratio);
      worst = std::min(worst, row.found.ratio);
      ++count;
    }
    std::printf("%s: geometric mean %.4f, worst %.4f of %d\n", bench.c_str(), std::exp(log_sum / count), worst, count);
  }

 private:
  BenchFile file_;
  char** words_;
  std::vector<BenchRow> rows_;
};

inline std::string ranks_text(const std::vector<int32_t>& widths) {
  std::string text;
  for (const int32_t width : widths) text += (text.empty() ? "" : "+") + std::to_string(width);
  return ", ranks " + text;
}

// Microseconds in which the wire moves what a rank sends, of all ranks, when nothing else runs: the rate of several calls'
// in a row, so without its latency.
inline double bare_transfer_us(const std::vector<int32_t>& widths, int64_t sent_bytes, int64_t chunk_bytes) {
  constexpr int64_t kCalls = 4;
  int64_t ranks = 0;
  for (const int32_t width : widths) ranks += width;
  VirtualCluster cluster(
      {.widths = widths, .max_chunks = kBenchChunks, .half_bytes = sent_bytes * ranks, .network = kBenchNetwork});
  BareTransfer transfer(cluster, sent_bytes, chunk_bytes);
  std::vector<double> us;
  for (Epoch first = 1; us.size() < 5; first += kCalls) {
    cluster.start_wire();
    us.push_back(transfer.run_us(first, kCalls) / kCalls);
    cluster.stop_wire();
  }
  return median(us);
}

// The best of the planner's candidates that do one after the other, with the chunks of its plan.
template <class Traits>
typename Traits::Plan unfused_of(const PlanOf<typename Traits::Plan>& plan) {
  const CandidateOf<typename Traits::Plan>* best = nullptr;
  for (const CandidateOf<typename Traits::Plan>& c : plan.candidates) {
    if (!Traits::is_fused(c.choice) && (best == nullptr || c.predicted_s < best->predicted_s)) best = &c;
  }
  if (best == nullptr) throw std::runtime_error("the planner has no unfused candidate");
  return best->choice;
}

// 2 nodes x 2 ranks on one GPU: the planner's plan against the floor, the unfused sequence and the planner's prediction.
template <class Traits, class Bench = FusedBench<Traits>>
void measure_point(const Turns& turns, const typename Bench::Size& size, Rows& rows) {
  const std::vector<int32_t> widths{2, 2};
  Bench bench(size, widths);
  const PlanOf<typename Traits::Plan> plan = Traits::make_plan(bench.problem(), bench.context());
  const std::vector<std::vector<double>> us = time_in_turns(
      turns, {bench.cublas(), bench.plain(), bench.fused(unfused_of<Traits>(plan)), bench.fused(plan.choice)});
  bench.check();
  // Larger chunks move at the wire's full rate.
  const int64_t chunk_bytes = std::max<int64_t>(65536, bench.chunk_bytes(plan.choice));
  const double move_us = bare_transfer_us(widths, bench.sent_bytes(), chunk_bytes);
  std::vector<double> floor_us, compute_us, predicted_us(us[3].size(), plan.predicted_s * 1e6);
  for (size_t i = 0; i < us[0].size(); ++i) {
    compute_us.push_back(std::min(us[0][i], us[1][i]));
    floor_us.push_back(std::max(compute_us.back(), move_us));
  }
  const std::string shape = size.text() + ranks_text(widths), form = Traits::form(plan.choice);
  std::vector<std::pair<std::string, double>> more{{"rate_bytes_per_s", kBenchNetwork.bandwidth_bytes_per_s},
                                                   {"compute_us", median(compute_us)},
                                                   {"communication_us", move_us},
                                                   {"is_fused", Traits::is_fused(plan.choice)}};
  for (const auto& number : Traits::more(plan.choice)) more.push_back(number);
  const std::string floor = std::string("max(") + Traits::kWhole + ", bare transfer)";
  rows.add({shape, form, compare(us[3], floor_us), {"fused_vs_floor", floor}, more});
  rows.add({shape, form, compare(us[3], us[2]), {"fused_vs_unfused", Traits::kUnfused}, more});
  rows.add({shape, form, compare(us[3], predicted_us), {"predicted_vs_measured", "the planner's prediction"}, more});
}

}  // namespace tilewire
