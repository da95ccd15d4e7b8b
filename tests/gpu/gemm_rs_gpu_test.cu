// The fused GEMM+ReduceScatter on virtual nodes of one rank and more: every element of every call bit for bit, and the ways
// in which a call ends early. gemm_rs_gpu_test [PART OF A NAME | --gpus PART]: `--gpus` spreads the ranks over all GPUs.
#include "gpu_program.cuh"
#include "ops/gemm_rs/device_launch.cuh"
#include "ops/gemm_rs/device_parameters.cuh"
#include "ops/gemm_rs/layout.h"
#include "ops/gemm_rs/roles.h"
#include "reduction_tests.cuh"
#include "trace_buffer.cuh"

#include <map>
#include <string>

namespace tilewire {
namespace {

struct GemmRs {
  using Problem = gemm_rs::Problem;
  using Plan = gemm_rs::FusedPlan;
  using Kernel = gemm_rs::FusedKernel;
  using Operands = gemm_rs::FusedOperands;
  using Parameters = gemm_rs::FusedParameters;

  static Problem problem(const ReductionSize& size, int32_t r) {
    return {.rows = size.rows,
            .n = size.n,
            .dtype = size.type,
            .wire_dtype = size.wire,
            .k = depth_of(size, r),
            .out_dtype = size.out};
  }
  static int64_t half_bytes(const Problem& problem, const Plan& plan, const PlanContext& context) {
    return gemm_rs::layout_of(problem, plan.choice, context).end;
  }
  static void set(Plan&, const ReductionSize&) {}
  static int64_t first_row(const ReductionSize& size, int32_t r) { return rows_before(size, r); }
  static int64_t rows(const ReductionSize& size, int32_t r) { return size.rows[static_cast<size_t>(r)]; }
  static int32_t bias_of(int32_t r) { return r; }
  static bool is_result(const FlagLayout&, uint64_t) { return false; }
};
using Case = ReductionCase<GemmRs>;

// One traced call of two nodes of two ranks: each chunk is made, summed or finished, and sent.
void test_trace() {
  const ReductionSize size{.name = "",
                           .rows = {300, 200, 64, 130},
                           .k = {136},
                           .n = 400,
                           .chunk_rows = 64,
                           .chunk_cols = 128,
                           .widths = {2, 2}};
  Case data(size, 1, kPatienceNs);
  TraceBuffer trace(data.kernel(0).ctas(), 64), narrow(data.kernel(1).ctas(), 1);
  data.prepare(1);
  for (int32_t r = 0; r < data.ranks(); ++r) {
    gemm_rs::FusedParameters parameters = data.parameters(r);
    if (r == 0) parameters.call.trace = trace.view();
    if (r == 1) parameters.call.trace = narrow.view();
    data.launch(r, parameters);
  }
  data.wait();
  expect(data.count_wrong(1) == 0, "a traced call computes what others do");
  std::map<int32_t, std::map<int64_t, int>> noted;  // by role, then by chunk
  const NotedWorks found = trace.noted();
  for (const NotedWork& n : found.works) ++noted[n.note.role][n.note.work];
  expect_in_order(found);
  // 5 + 4 + 1 + 3 row blocks, 4 blocks of columns: 20 own chunks, 4 for the rail partner on the other node.
  expect(noted[gemm_rs::kComputeRole].size() == 52, "each chunk is made");
  expect(noted[gemm_rs::kReduceRole].size() == 4, "chunks of the rail are summed");
  expect(noted[gemm_rs::kSendRole].size() == 4, "and sent");
  expect(noted[gemm_rs::kFinishRole].size() == 20, "own chunks are finished");
  expect(found.dropped == 0 && noted.size() == 4, "and nothing else is noted");
  expect(narrow.noted().dropped > 0, "notes without room are counted");
}

int run(const std::string& part) {
  test_sizes_of<Case>(reduction_sizes(), part);
  if (part.empty() || part == "faults") {
    test_faults_of<Case>();
    test_trace();
    test_sizes_of<Case>(reduction_sizes(), "two ranks");  // the context works after faults
  }
  return verdict_of_claims();
}

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  tilewire::prepare_for_waiting_kernels();
  return tilewire::run_gpu_program([&] { return tilewire::run(tilewire::words_without_gpus(count, words)); });
}
