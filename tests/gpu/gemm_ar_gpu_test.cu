// The fused GEMM+AllReduce, in both forms, on virtual nodes of one rank and more: every element of every call bit for bit,
// and the ways in which a call ends early. gemm_ar_gpu_test [PART OF A NAME | --gpus PART]: `--gpus` spreads the ranks over
// all GPUs.
#include "gpu_program.cuh"
#include "ops/gemm_ar/device_launch.cuh"
#include "ops/gemm_ar/device_parameters.cuh"
#include "ops/gemm_ar/layout.h"
#include "ops/gemm_ar/roles.h"
#include "reduction_tests.cuh"
#include "trace_buffer.cuh"

#include <map>
#include <string>

namespace tilewire {
namespace {

struct GemmAr {
  using Problem = gemm_ar::Problem;
  using Plan = gemm_ar::FusedPlan;
  using Kernel = gemm_ar::FusedKernel;
  using Operands = gemm_ar::FusedOperands;
  using Parameters = gemm_ar::FusedParameters;

  static Problem problem(const ReductionSize& size, int32_t r) {
    return {.m = rows(size, r),
            .n = size.n,
            .dtype = size.type,
            .wire_dtype = size.wire,
            .out_dtype = size.out,
            .k = depth_of(size, r)};
  }
  static int64_t half_bytes(const Problem& problem, const Plan& plan, const PlanContext& context) {
    return gemm_ar::layout_of(problem, plan.choice, context).end;
  }
  static void set(Plan& plan, const ReductionSize& size) {
    plan.choice.is_one_shot = size.is_one_shot;
    if (size.is_one_shot) plan.choice.window = 0;
    if (form_of(plan) != nullptr) return;
    // Tiles of a reduction that this kernel is not built with.
    plan.tile_rows = Plan::kForms[1].work_rows();
    plan.tile_cols = Plan::kForms[1].work_cols();
  }
  static int64_t first_row(const ReductionSize&, int32_t) { return 0; }
  static int64_t rows(const ReductionSize& size, int32_t) {
    return rows_before(size, static_cast<int32_t>(size.rows.size()));
  }
  static int32_t bias_of(int32_t) { return 0; }
  static bool is_result(const FlagLayout& flags, uint64_t word) {
    return word >= flags.chunk(gemm_ar::kResultArrived, Rank{0}, Chunk{0}) &&
           word < flags.chunk(gemm_ar::kResultArrived, Rank{flags.ranks}, Chunk{0});
  }
};
using Case = ReductionCase<GemmAr>;

// Each size in two shots; and in one, where it has no window.
std::vector<ReductionSize> sizes() {
  std::vector<ReductionSize> all = reduction_sizes();
  for (const ReductionSize& size : reduction_sizes()) {
    if (size.window > 0) continue;
    all.push_back(size);
    all.back().name += ", one shot";
    all.back().is_one_shot = true;
  }
  return all;
}

// One traced call of two nodes of two ranks: what is made, summed, finished, forwarded, collected and sent, by role, and by
// chunk of the matrix. 5 row blocks, 4 of columns: 20 chunks, 5 of each rank.
void test_trace(bool is_one_shot) {
  ReductionSize size{.name = "",
                     .rows = {100, 64, 64, 92},
                     .k = {136},
                     .n = 400,
                     .chunk_rows = 64,
                     .chunk_cols = 128,
                     .is_one_shot = is_one_shot,
                     .widths = {2, 2}};
  Case data(size, 1, kPatienceNs);
  TraceBuffer trace(data.kernel(0).ctas(), 64);
  data.prepare(1);
  for (int32_t r = 0; r < data.ranks(); ++r) {
    gemm_ar::FusedParameters parameters = data.parameters(r);
    if (r == 0) parameters.call.trace = trace.view();
    data.launch(r, parameters);
  }
  data.wait();
  expect(data.count_wrong(1) == 0, "a traced call computes what others do");
  std::map<int32_t, std::map<int64_t, int>> noted;
  const NotedWorks found = trace.noted();
  for (const NotedWork& n : found.works) ++noted[n.note.role][n.note.work];
  const auto chunks = [&](int32_t role) { return noted[role].size(); };
  expect(chunks(gemm_ar::kComputeRole) == 20, "each chunk is made");
  // One shot: half of all chunks is summed, sent and forwarded by each rank of a node.
  expect(chunks(gemm_ar::kReduceRole) == (is_one_shot ? 10 : 5), "chunks of the rail, or the own share, are summed");
  expect(chunks(gemm_ar::kSendRole) == 10, "and sent; own results, too");
  expect(chunks(gemm_ar::kForwardRole) == (is_one_shot ? 10 : 5), "what came by network is forwarded");
  expect(chunks(gemm_ar::kFinishRole) == (is_one_shot ? 20 : 5), "own chunks are finished, or all");
  expect(chunks(gemm_ar::kCollectRole) == (is_one_shot ? 0 : 15), "those of others are collected");
  expect(found.dropped == 0, "and there is room for all notes");
}

int run(const std::string& part) {
  test_sizes_of<Case>(sizes(), part);
  if (part.empty() || part == "faults") {
    test_faults_of<Case>();
    for (const bool is_one_shot : {false, true}) test_trace(is_one_shot);
    test_sizes_of<Case>(sizes(), "two ranks");  // the context works after faults
  }
  return verdict_of_claims();
}

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  tilewire::prepare_for_waiting_kernels();
  return tilewire::run_gpu_program([&] { return tilewire::run(tilewire::words_without_gpus(count, words)); });
}
