// The bench of an op that sums products over ranks: [--gpus | --nodes | --sweep] [FILE.json COMMIT DATE], or --tries or --timeline with points:
// M N K [ranks=2+2] [NAME=VALUE,...]..., where each list of fields of the plan makes another one. Random data, medians over rounds in
// which all contenders take turns.
//
//   --nodes   2 nodes x 2 ranks on one GPU, joined by the emulated wire, at the fixed points: against the floor, against
//             the unfused sequence, and against what the planner predicts
//   --sweep   the same cluster at other points, with every form, chunk size and number of teams
//   --tries     the same cluster at the points named: the planner's plan, and plans that differ from it, beside each other
//   --timeline  the same plans: what the roles of the first rank do in a call
//   --gpus    a rank a GPU, over their links
//   without   virtual nodes of 1, 2 and 4 ranks on one GPU, against cuBLAS for the product of each rank, which sums nothing up
#pragma once

#include "bench_trials.cuh"
#include "fused_bench.cuh"
#include "gpu_program.cuh"

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace tilewire {

inline constexpr Turns kTurns{.rounds = 7, .block_us = 6000, .least = 5, .most = 60};

// Rows and columns of the sum, depth of each rank.
inline constexpr BenchSize kNodeSizes[] = {
    {8192, 8192, 8192}, {8192, 8192, 3584}, {8192, 4096, 4096}, {2048, 8192, 4096}};
inline constexpr BenchSize kOtherSizes[] = {{4096, 6144, 3072}, {2048, 6144, 6144}, {6144, 6144, 2048}};

// What Traits of fused_bench.cuh have alike for these ops. kMoreSizes: measured on one node, too.
template <class PlanOfOp, class KernelOfOp>
struct ReductionTraits {
  using Plan = PlanOfOp;
  using Kernel = KernelOfOp;
  using Problem = typename Plan::Problem;
  using Operands = typename Kernel::Operands;
  static constexpr const char* kWhole = "cuBLAS or plain kernel on each rank";

  // Of whole slots, and some room for chunks that do not divide the matrix.
  static int64_t half_bytes_of(const Problem& problem, const std::vector<int32_t>& widths,
                               const typename Problem::Choice& choice) {
    const TopologyTables topology = TopologyTables::from_layout(widths);
    PlanContext context{.topology = topology.view(), .me = Rank{0}, .arena = {}, .machine = {}};
    context.arena.flags = {.ranks = topology.view().ranks, .max_chunks = kBenchChunks};
    context.arena.half_stride_bytes = int64_t{1} << 40;
    return layout_of(problem, choice, context).end + (int64_t{32} << 20);
  }
  static PlanOf<Plan> make_plan(const Problem& problem, const PlanContext& context) {
    return tilewire::make_plan<Plan>(problem, context);
  }
  static bool is_fused(const Plan& plan) { return plan.choice.is_fused; }
  static const char* form(const Plan& plan) { return name_of_form(plan); }
  static int64_t chunk_bytes(const BenchSize&, const Plan& plan) {
    return plan.choice.chunk_rows * plan.choice.chunk_cols * 2;
  }
  static Operands operands_of(const BenchOperands& o, const DeviceMatrix& result) {
    const MatrixView out{const_cast<void*>(result.data), result.rows, result.cols, result.cols, 1, DataType::bf16};
    return {.a = o.whole, .b = o.b, .out = out, .residual = {}};
  }
};

template <class Traits>
BenchRow against_cublas(const BenchSize& size, int32_t ranks, const FormNumbers& form) {
  FusedBench<Traits> bench(size, {ranks});
  typename Traits::Plan plan = make_plan<typename Traits::Plan>(bench.problem(), bench.context()).choice;
  plan.tile_rows = form.work_rows();
  plan.tile_cols = form.work_cols();
  plan.choice.workers = bench.context().workers / form.launch_ctas * form.launch_ctas / form.cluster_ctas();
  const Comparison found = compare_in_turns(kTurns, bench.cublas(), bench.fused(plan));
  bench.check();
  return {size.text() + ranks_text({ranks}), form.name, found};
}

template <class Traits>
void sweep(const BenchSize& size, Rows& rows) {
  const Turns turns{.rounds = 3, .block_us = 4000, .least = 3, .most = 20};
  FusedBench<Traits> bench(size, {2, 2});
  const typename Traits::Plan planned = make_plan<typename Traits::Plan>(bench.problem(), bench.context()).choice;
  const auto add = [&](const typename Traits::Plan& plan) {
    const double predicted_us = check_plan(plan, bench.problem(), bench.context()).predicted_s * 1e6;
    const std::vector<std::vector<double>> us = time_in_turns(turns, {bench.fused(plan)});
    rows.add({size.text() + ", chunks " + std::to_string(plan.choice.chunk_rows) + "x" +
                  std::to_string(plan.choice.chunk_cols) + ", teams " + std::to_string(plan.choice.reduce_workers),
              Traits::form(plan), compare(us[0], std::vector<double>(us[0].size(), predicted_us))});
    bench.check();
  };
  for (const FormNumbers& form : Traits::Plan::kForms) {
    typename Traits::Plan plan = planned;
    plan.tile_rows = form.work_rows();
    plan.tile_cols = form.work_cols();
    plan.choice.workers = bench.context().workers / form.launch_ctas * form.launch_ctas / form.cluster_ctas();
    add(plan);
  }
  for (const auto& [chunk_rows, chunk_cols] : {std::pair{128, 256}, std::pair{256, 256}, std::pair{256, 512}}) {
    for (const int32_t teams : {1, 2, 4, 8}) {
      typename Traits::Plan plan = planned;
      plan.choice.chunk_rows = chunk_rows;
      plan.choice.chunk_cols = chunk_cols;
      plan.choice.reduce_workers = teams;
      add(plan);
    }
  }
}

template <class Traits>
int run_reduction_bench(int count, char** words) {
  const std::string mode = count > 1 && words[1][0] == '-' ? words[1] : "";
  char** file = count >= (mode.empty() ? 4 : 5) ? words + (mode.empty() ? 1 : 2) : nullptr;
  if (mode == "--nodes") {
    Rows rows({"fused_vs_floor", "", Traits::kOp}, file);
    for (const int64_t m : {2048, 8192}) {
      for (const int64_t n : {4096, 8192}) {
        for (const int64_t k : {2048, 3584, 4096, 8192, 14336}) measure_point<Traits>(kTurns, {m, n, k}, rows);
      }
    }
    for (const char* bench : {"fused_vs_floor", "fused_vs_unfused", "predicted_vs_measured"}) rows.print_mean(bench);
  } else if (mode == "--tries") {
    print_trials<Traits>(count - 2, words + 2);
  } else if (mode == "--timeline") {
    print_timelines<Traits>(count - 2, words + 2);
  } else if (mode == "--sweep") {
    Rows rows({"calibration", "the planner's prediction", Traits::kOp}, file);
    for (const BenchSize& size : kOtherSizes) sweep<Traits>(size, rows);
  } else {
    if (mode == "--gpus") spread_over_all_gpus();
    Rows rows({mode == "--gpus" ? "fused_nvlink" : "fused_virtual_node", "cublasGemmEx alone", Traits::kOp}, file);
    const std::vector<int32_t> widths =
        mode == "--gpus" ? std::vector<int32_t>{gpus_of_clusters} : std::vector{1, 2, 4};
    for (const int32_t ranks : widths) {
      std::vector<BenchSize> sizes(std::begin(kNodeSizes), std::end(kNodeSizes));
      sizes.insert(sizes.end(), std::begin(Traits::kMoreSizes), std::end(Traits::kMoreSizes));
      for (const BenchSize& size : sizes) {
        for (size_t form = 0; form < 2; ++form)
          rows.add(against_cublas<Traits>(size, ranks, Traits::Plan::kForms[form]));
      }
    }
  }
  return 0;
}

}  // namespace tilewire
