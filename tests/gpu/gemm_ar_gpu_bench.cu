// The fused GEMM+AllReduce: see reduction_bench.cuh.
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

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  tilewire::prepare_for_waiting_kernels();
  return tilewire::run_gpu_program([&] { return tilewire::run_reduction_bench<tilewire::GemmAr>(count, words); });
}
