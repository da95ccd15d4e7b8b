// The fused GEMM+AllReduce: see reduction_bench.cuh. --few-rows: a node of four ranks on one GPU, rows of a step of decoding.
#include "bare_all_reduce.cuh"
#include "ops/gemm_ar/device_launch.cuh"
#include "ops/gemm_ar/device_parameters.cuh"
#include "ops/gemm_ar/layout.h"
#include "ops/gemm_ar/roles.h"
#include "reduction_bench.cuh"

namespace tilewire {
namespace {

struct GemmAr : ReductionTraits<gemm_ar::FusedPlan, gemm_ar::FusedKernel> {
  static constexpr const char* kOp = "gemm_ar";
  // Few rows, as of a step of decoding.
  static constexpr BenchSize kMoreSizes[] = {{1, 8192, 1024}, {8, 8192, 1024}, {64, 8192, 1024}, {64, 8192, 3584}};
  static constexpr const char* kUnfused = "multiply, then reduce and gather by the same roles";

  static Problem problem(const BenchSize& size, int32_t) { return {.m = size.rows, .n = size.cols, .k = size.depth}; }
  static int64_t half_bytes(const BenchSize& size, const std::vector<int32_t>& widths) {
    return std::max(half_bytes_of(problem(size, 0), widths, {}),
                    half_bytes_of(problem(size, 0), widths, {.is_one_shot = true, .cursors = {}}));
  }
  // The optimum: as sums, and as results.
  static int64_t sent_bytes(const BenchSize& size, int32_t ranks) { return 2 * size.rows / ranks * size.cols * 2; }
  static std::vector<std::pair<std::string, double>> more(const Plan& plan) {
    return {{"is_one_shot", plan.choice.is_one_shot},
            {"chunk_rows", plan.choice.chunk_rows},
            {"chunk_cols", plan.choice.chunk_cols},
            {"reduce_workers", plan.choice.reduce_workers},
            {"gather_behind", plan.choice.gather_behind}};
  }
  static Operands operands(const BenchOperands& o) { return operands_of(o, o.d); }
  static auto role_names() { return gemm_ar::Roles::names(); }
};

// Few rows on four ranks of a node, against what that costs at least.
void measure_few_rows(char** file) {
  constexpr const char* kBaseline = "weights read by all ranks at once, and a bare push, flag and sum of the rows";
  constexpr int32_t kRanks = 4;
  Rows rows({"few_rows", kBaseline, GemmAr::kOp}, file);
  for (const int64_t depth : {1024, 3584}) {
    for (const int64_t m : {1, 8, 64}) {
      const BenchSize size{m, 8192, depth};
      FusedBench<GemmAr> bench(size, {kRanks});
      const auto plan = GemmAr::make_plan(bench.problem(), bench.context()).choice;
      BareAllReduce bare(kRanks, size, bench.context().workers);
      const std::vector<std::vector<double>> us =
          time_in_turns(kTurns, {bench.fused(plan), bare.weights(), bare.exchange(), bench.cublas()});
      bench.check();
      bare.check();
      std::vector<double> least_us;
      for (size_t i = 0; i < us[0].size(); ++i) least_us.push_back(us[1][i] + us[2][i]);
      rows.add({size.text() + ranks_text({kRanks}),
                GemmAr::form(plan),
                compare(us[0], least_us),
                {},
                {{"weights_us", median(us[1])},
                 {"exchange_us", median(us[2])},
                 {"cublas_us", median(us[3])},
                 {"is_one_shot", plan.choice.is_one_shot}}});
      std::printf("%20s weights %.1f us, exchange %.1f us, cuBLAS %.1f us\n", "", median(us[1]), median(us[2]),
                  median(us[3]));
    }
  }
}

int run(int count, char** words) {
  if (count < 2 || std::string(words[1]) != "--few-rows") return run_reduction_bench<GemmAr>(count, words);
  measure_few_rows(count >= 5 ? words + 2 : nullptr);
  return 0;
}

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  tilewire::prepare_for_waiting_kernels();
  return tilewire::run_gpu_program([&] { return tilewire::run(count, words); });
}
