// The compute role of MoE dispatch on one rank, in the form of the kernel and in another one, against cuBLAS in a loop over
// the experts; the whole call beside it; and routing alone. Random data, in turns.
//   moe_dispatch_gpu_bench [--short] [FILE COMMIT DATE]
#include "bench_rows.cuh"
#include "coded_values.h"
#include "gemm_check.cuh"
#include "gpu_program.cuh"
#include "grouped_gemm.cuh"
#include "moe_sizes.h"
#include "virtual_cluster.cuh"

#include <cublas_v2.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

namespace tilewire {
namespace {

struct CooperativeInLine : WithRoomForRows<Cooperative128x256> {
  static constexpr ClusterShape kCluster = ClusterShape::pair_in_line;
  static constexpr int32_t kBoxCols = 32;
};

constexpr uint64_t kTimeoutNs = 2'000'000'000;
constexpr Turns kTurns{.rounds = 7, .block_us = 5000, .least = 3, .most = 50};

struct GroupedSize {
  int64_t rows;
  int32_t experts;
  int64_t h, cols;
  moe_dispatch::Skew skew;
  const char* skew_name;
};

class Stopwatch {
 public:
  Stopwatch() {
    cudaEventCreate(&begin_);
    cudaEventCreate(&end_);
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  template <class Launch>
  double us(int count, cudaStream_t stream, const Launch& launch) {
    cudaEventRecord(begin_, stream);
    for (int i = 0; i < count; ++i) launch();
    cudaEventRecord(end_, stream);
    check_cuda(cudaEventSynchronize(end_), "measuring");
    float ms = 0;
    cudaEventElapsedTime(&ms, begin_, end_);
    return 1000.0 * ms / count;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// One rank with all experts; each token is for one of them (or for k).
class OneRank {
 public:
  OneRank(int64_t tokens, int32_t top_k, int32_t experts, int64_t h, int64_t cols, moe_dispatch::Skew skew,
          int64_t most_rows, int32_t ctas)
      : problem_(problem_of(tokens, top_k, experts, h, cols, most_rows)),
        plan_(plan_of(tokens, ctas)),
        cluster_(size_of(problem_, plan_)),
        tokens_(tokens),
        x_(tokens * padded(h)),
        w_(std::max<int64_t>(1, experts * h * cols)),
        out_(std::max<int64_t>(1, most_rows * padded(cols))),
        ids_(tokens * top_k),
        origins_(3 * most_rows),
        offsets_(experts + 1) {
    fill_matrix<<<512, 256>>>(x_.data(), tokens, h, padded(h), MatrixContent::random, 1);
    fill_matrix<<<512, 256>>>(w_.data(), experts * h, cols, cols, MatrixContent::random, 2);
    const moe_dispatch::Routes routes = moe_dispatch::draw_all_routes(skew, {tokens}, top_k, experts, 7);
    counts_.assign(static_cast<size_t>(experts), 0);
    for (const int32_t id : routes.ids[0]) ++counts_[static_cast<size_t>(id)];
    check_cuda(cudaMemcpy(ids_.data(), routes.ids[0].data(), routes.ids[0].size() * 4, cudaMemcpyHostToDevice), "ids");
    context_ = cluster_.context(0);
    context_.workers = ctas;
    kernel_ =
        std::make_unique<moe_dispatch::FusedKernel>(problem_, plan_, context_, cluster_.rank(0, kTimeoutNs), true);
    check_cuda(cudaDeviceSynchronize(), "preparing");
  }

  moe_dispatch::FusedOperands operands() const {
    return {.x = {x_.data(), tokens_, problem_.h, padded(problem_.h) * 2, DataType::bf16},
            .routes = {.ids = ids_.data(), .token_stride = problem_.top_k},
            .w = weights(),
            .out = {out_.data(), problem_.most_rows, problem_.cols, padded(problem_.cols) * 2, DataType::bf16},
            .origins = origins_.data(),
            .offsets = offsets_.data()};
  }
  SlotArray weights() const {
    return {w_.data(),     problem_.experts(), problem_.h,
            problem_.cols, problem_.cols * 2,  problem_.h * problem_.cols * 2,
            DataType::bf16};
  }
  // Of the half of the next call after an even number of them.
  DeviceMatrix rows() const {
    const moe_dispatch::FusedParameters p = kernel_->parameters(1, operands());
    const moe_dispatch::Buffers& b = p.schedule.buffers;
    return {cluster_.rank(0, 0).arenas[0] + cluster_.layout().half_offset(1) + b.rows_offset(0, 0), b.slot_rows,
            problem_.h, b.row_pitch, DataType::bf16};
  }
  void launch() const { kernel_->launch(1, operands(), cluster_.stream(0)); }
  void check(const char* when) const {
    check_cuda(cudaDeviceSynchronize(), when);
    if (cluster_.fault(0).state != FaultRecord::kNone) {
      const FaultRecord& f = cluster_.fault(0);
      std::printf("FAULT %s: kind %d role %d cta %d word %llu\n", when, static_cast<int>(f.kind), f.role, f.cta,
                  static_cast<unsigned long long>(f.word));
      throw std::runtime_error("a wait expired in the bench");
    }
  }
  cudaStream_t stream() const { return cluster_.stream(0); }
  const moe_dispatch::FusedKernel& kernel() const { return *kernel_; }
  const std::vector<int64_t>& counts() const { return counts_; }
  const __nv_bfloat16* x() const { return x_.data(); }
  const __nv_bfloat16* w() const { return w_.data(); }
  __nv_bfloat16* out() const { return out_.data(); }

 private:
  static moe_dispatch::Problem problem_of(int64_t tokens, int32_t top_k, int32_t experts, int64_t h, int64_t cols,
                                          int64_t most_rows) {
    moe_dispatch::Problem p{.rank_of_expert = dealt(experts, 1),
                            .h = h,
                            .top_k = top_k,
                            .most_rows = most_rows,
                            .cols = cols,
                            .result_rows = most_rows};
    p.most_tokens = p.planned_tokens = tokens;
    return p;
  }
  static moe_dispatch::FusedPlan plan_of(int64_t tokens, int32_t ctas) {
    moe_dispatch::FusedPlan plan;
    plan.choice.block_tokens = tokens;
    plan.choice.window = 1;
    plan.choice.raster_rows = 16;
    plan.choice.workers = ctas;
    return plan;
  }
  static VirtualClusterSize size_of(const moe_dispatch::Problem& p, const moe_dispatch::FusedPlan& plan) {
    VirtualClusterSize size{.widths = {1}, .max_chunks = 1024, .first = 1};
    const TopologyTables topology = TopologyTables::from_layout({1});
    PlanContext context{.topology = topology.view(), .me = Rank{0}, .arena = {}, .machine = {}};
    context.arena.flags = {.ranks = 1, .max_chunks = size.max_chunks};
    size.half_bytes = buffers_of(p, plan.choice, context).end();
    return size;
  }

  moe_dispatch::Problem problem_;
  moe_dispatch::FusedPlan plan_;
  VirtualCluster cluster_;
  PlanContext context_;
  int64_t tokens_;
  DeviceBuffer<__nv_bfloat16> x_, w_, out_;
  DeviceBuffer<int32_t> ids_, origins_;
  DeviceBuffer<int64_t> offsets_;
  std::vector<int64_t> counts_;
  std::unique_ptr<moe_dispatch::FusedKernel> kernel_;
};

void cublas_loop(cublasHandle_t handle, const OneRank& rank, const GroupedSize& size) {
  const float one = 1, zero = 0;
  int64_t row = 0;
  for (size_t e = 0; e < rank.counts().size(); ++e) {
    const int64_t rows = rank.counts()[e];
    if (rows == 0) continue;
    const auto status =
        cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, static_cast<int>(size.cols), static_cast<int>(rows),
                     static_cast<int>(size.h), &one, rank.w() + static_cast<int64_t>(e) * size.h * size.cols,
                     CUDA_R_16BF, static_cast<int>(size.cols), rank.x() + row * padded(size.h), CUDA_R_16BF,
                     static_cast<int>(padded(size.h)), &zero, rank.out() + row * padded(size.cols), CUDA_R_16BF,
                     static_cast<int>(padded(size.cols)), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    if (status != CUBLAS_STATUS_SUCCESS) throw std::runtime_error("cuBLAS failed");
    row += rows;
  }
}

BenchRow measure_grouped(cublasHandle_t handle, const GroupedSize& size, Stopwatch& watch) {
  const int32_t ctas = sm_count() / 2 * 2;
  OneRank rank(size.rows, 1, size.experts, size.h, size.cols, size.skew, size.rows, ctas);
  cublasSetStream(handle, rank.stream());
  rank.launch();
  rank.check("first call");
  rank.launch();
  rank.check("second call");
  const moe_dispatch::FusedParameters p = rank.kernel().parameters(1, rank.operands());
  const DeviceMatrix rows = rank.rows();
  std::vector<std::unique_ptr<GroupedGemm>> ours;
  const auto add = [&](const GroupedForm& form, int32_t raster) {
    ours.push_back(std::make_unique<GroupedGemm>(form, rank.kernel(), p, rows, rank.weights(), raster, ctas));
  };
  add(grouped_form<WithRoomForRows<PingPong128x128>>("pp128x128_line"), 16);
  add(grouped_form<CooperativeInLine>("coop128x256_line"), 16);
  std::vector<TimeUs> contenders;
  contenders.emplace_back(
      [&](int count) { return watch.us(count, rank.stream(), [&] { cublas_loop(handle, rank, size); }); });
  for (const auto& form : ours) {
    contenders.emplace_back(
        [&](int count) { return watch.us(count, rank.stream(), [&] { form->launch(rank.stream()); }); });
  }
  contenders.emplace_back([&](int count) { return watch.us(count, rank.stream(), [&] { rank.launch(); }); });
  const auto us = time_in_turns(kTurns, contenders);
  rank.check("timing");
  const double flop =
      2.0 * static_cast<double>(size.rows) * static_cast<double>(size.h) * static_cast<double>(size.cols);
  std::printf("%-8s E %2d rows %6lld H %lld I %lld: cublas loop %8.1f us %5.0f TF", size.skew_name, size.experts,
              static_cast<long long>(size.rows), static_cast<long long>(size.h), static_cast<long long>(size.cols),
              median(us[0]), flop / median(us[0]) / 1e6);
  for (size_t i = 0; i < ours.size(); ++i) {
    const Comparison c = compare(us[i + 1], us[0]);
    std::printf(" | %s %.1f us %.0f TF %.3f", ours[i]->name().c_str(), c.ours_us, flop / c.ours_us / 1e6, c.ratio);
  }
  std::printf(" | whole call %.1f us\n", median(us.back()));
  std::fflush(stdout);
  const BenchSize shape{size.rows, size.cols, size.h};
  return {shape.text() + ", " + std::to_string(size.experts) + " experts, " + size.skew_name,
          rank.kernel().form().name,
          compare(us[1], us[0]),
          {},
          {{"whole_call_us", median(us.back())}}};
}

// A call that ends behind the tables, as there are too many rows.
void measure_routing(int64_t tokens, int32_t top_k, int32_t experts, Stopwatch& watch) {
  OneRank rank(tokens, top_k, experts, 64, 64, moe_dispatch::Skew::uniform, 1, sm_count() / 2 * 2);
  rank.launch();
  rank.check("routing");
  std::vector<double> us;
  for (int i = 0; i < 9; ++i) us.push_back(watch.us(20, rank.stream(), [&] { rank.launch(); }));
  rank.check("routing");
  std::printf("routing alone and an empty call: T %lld k %d E %d: %.1f us\n", static_cast<long long>(tokens), top_k,
              experts, median(us));
  std::fflush(stdout);
}

int run(int count, char** words) {
  const bool is_short = count > 1 && std::string(words[1]) == "--short";
  if (is_short) {
    ++words;
    --count;
  }
  using moe_dispatch::Skew;
  Stopwatch watch;
  measure_routing(1, 1, 8, watch);
  measure_routing(128, 8, 256, watch);
  measure_routing(8192, 8, 256, watch);
  cublasHandle_t handle = nullptr;
  if (cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) throw std::runtime_error("cuBLAS does not start");
  std::vector<BenchRow> found;
  const struct {
    Skew skew;
    const char* name;
  } skews[] = {{Skew::uniform, "uniform"}, {Skew::zipf, "zipf"}, {Skew::one, "one"}};
  for (const auto& [h, cols] : {std::pair<int64_t, int64_t>{7168, 2048}, {4096, 1536}}) {
    for (const auto& [rows, experts] : {std::pair<int64_t, int32_t>{8192, 8}, {8192, 32}, {32768, 16}, {65536, 32}}) {
      for (const auto& [skew, name] : skews) {
        if (is_short && (skew == Skew::one || rows == 32768)) continue;
        found.push_back(measure_grouped(handle, {rows, experts, h, cols, skew, name}, watch));
      }
    }
  }
  cublasDestroy(handle);
  const BenchFile file{"compute_role", "cublasGemmEx in a loop", "moe_dispatch"};
  if (count >= 4) write_json(words[1], words[2], words[3], file, found);
  return 0;
}

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  tilewire::prepare_for_waiting_kernels();
  return tilewire::run_gpu_program([&] { return tilewire::run(count, words); });
}
