// The fused GEMM+ReduceScatter: gemm_rs_gpu_bench [--gpus | --nodes | --sweep] [FILE.json COMMIT DATE]. Random data, medians
// over rounds in which all contenders take turns.
//
//   --nodes   2 nodes x 2 ranks on one GPU, joined by the emulated wire, at the fixed points: against the floor, against
//             the unfused sequence, and against what the planner predicts
//   --sweep   the same cluster at other points, with every form, chunk size and number of teams
//   --gpus    a rank a GPU, over their links
//   without   virtual nodes of 1, 2 and 4 ranks on one GPU, against cuBLAS for the product of each rank, which sums nothing up
#include "fused_bench.cuh"
#include "gpu_program.cuh"

#include "ops/gemm_rs/device_launch.cuh"
#include "ops/gemm_rs/device_parameters.cuh"
#include "ops/gemm_rs/layout.h"

#include <cstdio>
#include <string>

namespace tilewire {
namespace {

constexpr Turns kTurns{.rounds = 7, .block_us = 6000, .least = 5, .most = 60};

// Rows and columns of the sum, depth of each rank.
constexpr BenchSize kNodeSizes[] = {{8192, 8192, 8192}, {8192, 8192, 3584}, {8192, 4096, 4096}, {2048, 8192, 4096}};
constexpr BenchSize kOtherSizes[] = {{4096, 6144, 3072}, {2048, 6144, 6144}, {6144, 6144, 2048}};

struct GemmRsTraits {
  static constexpr const char* kOp = "gemm_rs";
  static constexpr const char* kWhole = "each rank";
  static constexpr const char* kUnfused = "multiply, then reduce and scatter by the same roles";
  using Problem = gemm_rs::Problem;
  using Plan = gemm_rs::FusedPlan;
  using Kernel = gemm_rs::FusedKernel;

  static Problem problem(const BenchSize& size, int32_t ranks) {
    return {
        .rows = std::vector<int64_t>(static_cast<size_t>(ranks), size.rows / ranks), .n = size.cols, .k = size.depth};
  }
  // Of whole slots, and some room for chunks that do not divide the matrix.
  static int64_t half_bytes(const BenchSize& size, const std::vector<int32_t>& widths) {
    const TopologyTables topology = TopologyTables::from_layout(widths);
    PlanContext context{.topology = topology.view(), .me = Rank{0}, .arena = {}, .machine = {}};
    context.arena.flags = {.ranks = topology.view().ranks, .max_chunks = kBenchChunks};
    context.arena.half_stride_bytes = int64_t{1} << 40;
    return gemm_rs::layout_of(problem(size, topology.view().ranks), {}, context).end + (int64_t{32} << 20);
  }
  static PlanOf<Plan> make_plan(const Problem& problem, const PlanContext& context) {
    return tilewire::make_plan<gemm_rs::FusedPlan>(problem, context);
  }
  static bool is_fused(const Plan& plan) { return plan.choice.is_fused; }
  static const char* form(const Plan& plan) { return gemm_rs::form_of(plan)->name; }
  static int64_t sent_bytes(const BenchSize& size, int32_t ranks) { return size.rows / ranks * size.cols * 2; }
  static int64_t chunk_bytes(const BenchSize&, const Plan& plan) {
    return plan.choice.chunk_rows * plan.choice.chunk_cols * 2;
  }
  static std::vector<std::pair<std::string, double>> more(const Plan& plan) {
    return {{"chunk_rows", plan.choice.chunk_rows},
            {"chunk_cols", plan.choice.chunk_cols},
            {"reduce_workers", plan.choice.reduce_workers}};
  }
  static void launch(const Kernel& kernel, const BenchOperands& o, cudaStream_t stream) {
    const MatrixView out{const_cast<void*>(o.d.data), o.shard.rows, o.d.cols, o.d.cols, 1, DataType::bf16};
    kernel.launch(1, {.a = o.whole, .b = o.b, .out = out, .residual = {}}, stream);
  }
};
using Bench = FusedBench<GemmRsTraits>;

BenchRow against_cublas(const BenchSize& size, int32_t ranks, const FormNumbers& form) {
  Bench bench(size, {ranks});
  gemm_rs::FusedPlan plan = GemmRsTraits::make_plan(bench.problem(), bench.context()).choice;
  plan.tile_rows = form.work_rows();
  plan.tile_cols = form.work_cols();
  plan.choice.workers = bench.context().workers / form.launch_ctas * form.launch_ctas / form.cluster_ctas();
  const Comparison found = compare_in_turns(kTurns, bench.cublas(), bench.fused(plan));
  bench.check();
  return {size.text() + ranks_text({ranks}), form.name, found};
}

void sweep(const BenchSize& size, Rows& rows) {
  const Turns turns{.rounds = 3, .block_us = 4000, .least = 3, .most = 20};
  Bench bench(size, {2, 2});
  const gemm_rs::FusedPlan planned = GemmRsTraits::make_plan(bench.problem(), bench.context()).choice;
  const auto add = [&](const gemm_rs::FusedPlan& plan) {
    const double predicted_us = check_plan(plan, bench.problem(), bench.context()).predicted_s * 1e6;
    const std::vector<std::vector<double>> us = time_in_turns(turns, {bench.fused(plan)});
    rows.add({size.text() + ", chunks " + std::to_string(plan.choice.chunk_rows) + "x" +
                  std::to_string(plan.choice.chunk_cols) + ", teams " + std::to_string(plan.choice.reduce_workers),
              GemmRsTraits::form(plan), compare(us[0], std::vector<double>(us[0].size(), predicted_us))});
    bench.check();
  };
  for (const FormNumbers& form : gemm_rs::kFusedForms) {
    gemm_rs::FusedPlan plan = planned;
    plan.tile_rows = form.work_rows();
    plan.tile_cols = form.work_cols();
    plan.choice.workers = bench.context().workers / form.launch_ctas * form.launch_ctas / form.cluster_ctas();
    add(plan);
  }
  for (const auto& [chunk_rows, chunk_cols] : {std::pair{128, 256}, std::pair{256, 256}, std::pair{256, 512}}) {
    for (const int32_t teams : {1, 2, 4, 8}) {
      gemm_rs::FusedPlan plan = planned;
      plan.choice.chunk_rows = chunk_rows;
      plan.choice.chunk_cols = chunk_cols;
      plan.choice.reduce_workers = teams;
      add(plan);
    }
  }
}

int run(int count, char** words) {
  const std::string mode = count > 1 && words[1][0] == '-' ? words[1] : "";
  char** file = count >= (mode.empty() ? 4 : 5) ? words + (mode.empty() ? 1 : 2) : nullptr;
  if (mode == "--nodes") {
    Rows rows({"fused_vs_floor", "", GemmRsTraits::kOp}, file);
    for (const int64_t m : {2048, 8192}) {
      for (const int64_t n : {4096, 8192}) {
        for (const int64_t k : {2048, 3584, 4096, 8192, 14336}) measure_point<GemmRsTraits>(kTurns, {m, n, k}, rows);
      }
    }
    for (const char* bench : {"fused_vs_floor", "fused_vs_unfused", "predicted_vs_measured"}) rows.print_mean(bench);
  } else if (mode == "--sweep") {
    Rows rows({"calibration", "the planner's prediction", GemmRsTraits::kOp}, file);
    for (const BenchSize& size : kOtherSizes) sweep(size, rows);
  } else {
    if (mode == "--gpus") spread_over_all_gpus();
    Rows rows({mode == "--gpus" ? "fused_nvlink" : "fused_virtual_node", "cublasGemmEx alone", GemmRsTraits::kOp},
              file);
    const std::vector<int32_t> widths =
        mode == "--gpus" ? std::vector<int32_t>{gpus_of_clusters} : std::vector{1, 2, 4};
    for (const int32_t ranks : widths) {
      for (const BenchSize& size : kNodeSizes) {
        for (size_t form = 0; form < 2; ++form) rows.add(against_cublas(size, ranks, gemm_rs::kFusedForms[form]));
      }
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
