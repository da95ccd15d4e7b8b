// The fused AllGather+GEMM: ag_gemm_gpu_bench [--gpus | --nodes | --calibrate] [FILE.json COMMIT DATE], or --tries or
// --timeline with points (bench_trials.cuh). Random data, medians over rounds in which all contenders take turns.
//
//   --nodes      2 nodes x 2 ranks on one GPU, joined by the emulated wire, at the fixed points: against the floor, against
//                the unfused sequence, and against what the planner predicts; and what the wire costs the plain kernel
//   --calibrate  the same cluster at other points, every form by several ways to walk: what the cost model's constants
//                are taken from
//   --gpus       a rank a GPU, over their links
//   without      one GPU and no network. One rank against cuBLAS: what the machinery of a call costs (own copy, flags,
//                begin and end), with SMs that only push. Virtual nodes of 2 and 4 ranks on SMs / ranks each, all at once,
//                against cuBLAS on as many SMs a rank that finds its data gathered: the cost of the roles beside each
//                other and of waiting; nothing of links between GPUs, and all ranks share a memory, a cache and a power limit
#include "bench_trials.cuh"
#include "beside_wire.cuh"
#include "fused_bench.cuh"
#include "gpu_program.cuh"

#include "ops/ag_gemm/device_launch.cuh"
#include "ops/ag_gemm/device_parameters.cuh"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

namespace tilewire {
namespace {

constexpr Turns kTurns{.rounds = 7, .block_us = 6000, .least = 5, .most = 60};
constexpr const char* kGathered = "cublasGemmEx, data gathered beforehand";

// Rows of all ranks together, columns of each.
constexpr BenchSize kSizes[] = {{8192, 8192, 8192}, {8192, 3584, 8192},  {8192, 4096, 4096}, {2048, 8192, 8192},
                                {4096, 4096, 4096}, {8192, 28672, 1024}, {8192, 4096, 512}};
constexpr BenchSize kLinkSizes[] = {{8192, 8192, 8192}, {8192, 4096, 8192},  {8192, 2048, 8192}, {8192, 1024, 8192},
                                    {8192, 512, 8192},  {2048, 14336, 4096}, {2048, 4096, 8192}, {2048, 2048, 4096},
                                    {512, 4096, 4096},  {4096, 2048, 4096}};
constexpr BenchSize kNodeSizes[] = {{8192, 8192, 8192}, {8192, 4096, 4096}, {2048, 4096, 8192}, {8192, 4096, 1024}};
constexpr BenchSize kOtherSizes[] = {{4096, 3072, 6144}, {4096, 6144, 2048},  {8192, 6144, 6144},
                                     {1024, 8192, 4096}, {2048, 12288, 6144}, {6144, 2048, 2048}};

struct AgGemmTraits {
  static constexpr const char* kOp = "ag_gemm";
  static constexpr const char* kWhole = "cuBLAS or plain kernel on gathered data";
  static constexpr const char* kUnfused = "gather by the same roles, then multiply";
  using Problem = ag_gemm::Problem;
  using Plan = ag_gemm::FusedPlan;
  using Kernel = ag_gemm::FusedKernel;
  using Operands = Kernel::Operands;

  static Problem problem(const BenchSize& size, int32_t ranks) {
    return {.rows = std::vector<int64_t>(static_cast<size_t>(ranks), size.rows / ranks),
            .k = size.depth,
            .dtype = DataType::bf16,
            .cols = {size.cols}};
  }
  static int64_t half_bytes(const BenchSize& size, const std::vector<int32_t>&) { return size.rows * size.depth * 2; }
  static PlanOf<Plan> make_plan(const Problem& problem, const PlanContext& context) {
    return tilewire::make_plan<ag_gemm::FusedPlan>(problem, context);
  }
  static bool is_fused(const Plan& plan) { return plan.choice.is_fused; }
  static const char* form(const Plan& plan) { return ag_gemm::form_of(plan.choice)->name; }
  static int64_t sent_bytes(const BenchSize& size, int32_t ranks) { return size.rows * size.depth * 2 / ranks; }
  static int64_t chunk_bytes(const BenchSize& size, const Plan& plan) {
    return plan.choice.chunk_rows * size.depth * 2;
  }
  static std::vector<std::pair<std::string, double>> more(const Plan& plan) {
    return {{"chunk_rows", plan.choice.chunk_rows}, {"raster_rows", plan.choice.raster_rows}};
  }
  static Operands operands(const BenchOperands& o) {
    return {.a = o.shard, .b = {&o.b, 1}, .out = {&o.d, 1}, .bias = {}};
  }
  static auto role_names() { return ag_gemm::Roles::names(); }
};
using Bench = FusedBench<AgGemmTraits>;

struct Split {
  int32_t push_ctas, raster_works;  // of clusters
  bool own_in_place = true;
  uint32_t pace_clocks = 0;
};

// As planned, but for what the split says.
BenchRow against_cublas(const BenchSize& size, int32_t ranks, const Split& split) {
  constexpr int64_t kChunkBytes = 32768;  // of what warps beside the tiles copy
  Bench bench(size, {ranks});
  ag_gemm::FusedPlan plan = ag_gemm::make_fused_plan(bench.problem(), bench.context(), split.push_ctas).choice;
  plan.choice.raster_rows = split.raster_works * ag_gemm::form_of(plan.choice)->cluster_row_tiles;
  plan.choice.chunk_rows = split.push_ctas > 0 ? 128 : std::max<int64_t>(1, kChunkBytes / (2 * size.depth));
  plan.own_in_place = split.own_in_place;
  plan.pace_clocks = split.pace_clocks;
  const Comparison found = compare_in_turns(kTurns, bench.cublas(), bench.fused(plan));
  bench.check();
  const std::string shape = size.text() + ranks_text({ranks}) + ", push " + std::to_string(split.push_ctas) +
                            ", raster " + std::to_string(split.raster_works) +
                            (split.own_in_place ? "" : ", own copy") +
                            (split.pace_clocks > 0 ? ", pace " + std::to_string(split.pace_clocks) : "");
  return {shape, ag_gemm::form_of(plan.choice)->name, found};
}

void calibrate(const BenchSize& size, Rows& rows) {
  for (const int64_t chunk_bytes : {65536, 131072, 262144}) {
    Bench bench(size, {2, 2});
    ag_gemm::FusedPlan plan = make_plan<ag_gemm::FusedPlan>(bench.problem(), bench.context()).choice;
    for (const FormNumbers& form : ag_gemm::kFusedForms) {
      for (const int32_t raster_works : {1, 2, 8}) {
        if (chunk_bytes != 131072 && (&form != &ag_gemm::kFusedForms[0] || raster_works > 1)) continue;
        plan.choice.chunk_rows = std::max<int64_t>(1, chunk_bytes / (2 * size.depth));
        plan.choice.tile_rows = form.rows;
        plan.choice.tile_cols = form.cols;
        plan.choice.workers = bench.context().workers / form.cluster_ctas() * form.cluster_ctas();
        plan.choice.raster_rows = raster_works * form.cluster_row_tiles;
        plan.choice.is_fused = true;
        const double predicted_us = check_plan(plan, bench.problem(), bench.context()).predicted_s * 1e6;
        const Turns turns{.rounds = 3, .block_us = 4000, .least = 3, .most = 20};
        const std::vector<std::vector<double>> us = time_in_turns(turns, {bench.fused(plan)});
        rows.add(
            {size.text() + ", chunks of " + std::to_string(chunk_bytes) + ", raster " + std::to_string(raster_works),
             form.name, compare(us[0], std::vector<double>(us[0].size(), predicted_us))});
      }
    }
    bench.check();
  }
}

int run(int count, char** words) {
  const std::string mode = count > 1 && words[1][0] == '-' ? words[1] : "";
  char** file = count >= (mode.empty() ? 4 : 5) ? words + (mode.empty() ? 1 : 2) : nullptr;
  if (mode == "--timeline") {
    print_timelines<AgGemmTraits>(count - 2, words + 2);
  } else if (mode == "--tries") {
    print_trials<AgGemmTraits>(count - 2, words + 2);
  } else if (mode == "--nodes") {
    Rows rows({"fused_vs_floor", "", AgGemmTraits::kOp}, file);
    for (const int64_t m : {2048, 8192}) {
      for (const int64_t k : {4096, 8192}) {
        for (const int64_t n : {2048, 3584, 4096, 8192, 14336}) measure_point<AgGemmTraits>(kTurns, {m, n, k}, rows);
      }
    }
    measure_beside_wire<AgGemmTraits>(kTurns, {8192, 4096, 4096}, rows);
    for (const char* bench : {"fused_vs_floor", "fused_vs_unfused", "predicted_vs_measured"}) rows.print_mean(bench);
  } else if (mode == "--calibrate") {
    Rows rows({"calibration", "the planner's prediction", AgGemmTraits::kOp}, file);
    for (const BenchSize& size : kOtherSizes) calibrate(size, rows);
  } else if (mode == "--gpus") {
    spread_over_all_gpus();
    Rows rows({"fused_nvlink", kGathered, AgGemmTraits::kOp}, file);
    for (const BenchSize& size : kLinkSizes) {
      for (const Split split : {Split{0, 1}, Split{0, 1, true, 2500}, Split{0, 1, true, 3000}, Split{8, 1}}) {
        rows.add(against_cublas(size, gpus_of_clusters, split));
      }
    }
  } else {
    Rows rows({"fused_virtual_node", kGathered, AgGemmTraits::kOp}, file);
    for (const BenchSize& size : kSizes) {
      for (const Split split : {Split{0, 8}, Split{0, 2}, Split{2, 8}, Split{4, 8, false}}) {
        rows.add(against_cublas(size, 1, split));
      }
    }
    for (const int32_t ranks : {2, 4}) {
      for (const BenchSize& size : kNodeSizes) {
        for (const Split split : {Split{0, 1}, Split{0, 4}, Split{2, 1}, Split{4, 1}}) {
          rows.add(against_cublas(size, ranks, split));
        }
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
