// The fused GEMM+ReduceScatter: see reduction_bench.cuh.
#include "ops/gemm_rs/device_launch.cuh"
#include "ops/gemm_rs/device_parameters.cuh"
#include "ops/gemm_rs/layout.h"
#include "ops/gemm_rs/roles.h"
#include "reduction_bench.cuh"

namespace tilewire {
namespace {

struct GemmRs : ReductionTraits<gemm_rs::FusedPlan, gemm_rs::FusedKernel> {
  static constexpr const char* kOp = "gemm_rs";
  static constexpr std::array<BenchSize, 0> kMoreSizes{};
  static constexpr const char* kUnfused = "multiply, then reduce and scatter by the same roles";

  static Problem problem(const BenchSize& size, int32_t ranks) {
    return {
        .rows = std::vector<int64_t>(static_cast<size_t>(ranks), size.rows / ranks), .n = size.cols, .k = size.depth};
  }
  static int64_t half_bytes(const BenchSize& size, const std::vector<int32_t>& widths) {
    int32_t ranks = 0;
    for (const int32_t width : widths) ranks += width;
    return half_bytes_of(problem(size, ranks), widths, {});
  }
  static int64_t sent_bytes(const BenchSize& size, int32_t ranks) { return size.rows / ranks * size.cols * 2; }
  static std::vector<std::pair<std::string, double>> more(const Plan& plan) {
    return {{"chunk_rows", plan.choice.chunk_rows},
            {"chunk_cols", plan.choice.chunk_cols},
            {"reduce_workers", plan.choice.reduce_workers}};
  }
  static Operands operands(const BenchOperands& o) {
    return operands_of(o, {o.d.data, o.shard.rows, o.d.cols, o.d.pitch_bytes, o.d.type});
  }
  static auto role_names() { return gemm_rs::Roles::names(); }
};

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  tilewire::prepare_for_waiting_kernels();
  return tilewire::run_gpu_program([&] { return tilewire::run_reduction_bench<tilewire::GemmRs>(count, words); });
}
