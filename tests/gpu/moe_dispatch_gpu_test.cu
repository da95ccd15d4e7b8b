// The fused MoE dispatch on virtual nodes of 1, 2 and 4 ranks: every table, row and element of every call, and the ways in
// which a call ends early.
//   moe_dispatch_gpu_test [--gpus] [PART OF A NAME]    --gpus spreads the ranks over all GPUs
//   moe_dispatch_gpu_test --sanitized                  small sizes and long deadlines, for compute-sanitizer
#include "gpu_program.cuh"
#include "moe_case.cuh"
#include "ops/moe_dispatch/roles.h"
#include "trace_buffer.cuh"

#include <map>
#include <set>
#include <string>

namespace tilewire {
namespace {

MoeSize in_a_row(const std::vector<int32_t>& widths, Personality personality) {
  return {.name = "",
          .tokens = {130, 70, 33, 90},
          .rank_of_expert = dealt(7, 4),
          .top_k = 3,
          .h = 136,
          .cols = 130,
          .block_tokens = 40,
          .window = 2,
          .widths = widths,
          .personality = personality};
}

void test_faults() {
  const MoeSize two{.name = "", .tokens = {130, 70}, .rank_of_expert = dealt(5, 2), .top_k = 2, .h = 136, .cols = 264};
  const auto check_unfinished = [](const MoeCase& data) {
    expect(data.is_unfinished(0), "what a rank has not finished is NaN");
  };
  test_ranks_in_different_calls_of<MoeCase>(two, check_unfinished);
  test_abort_by_the_host_of<MoeCase>(two, check_unfinished);
}

// One traced call of two nodes of two ranks, which rank 0 brings four rounds to, and its rail partner one.
void test_trace() {
  MoeCase data(in_a_row({2, 2}, Personality::rc), 1, kPatienceNs);
  TraceBuffer trace(data.kernel(0).ctas(), 64);
  data.prepare(1);
  for (int32_t r = 0; r < data.ranks(); ++r) {
    moe_dispatch::FusedParameters parameters = data.parameters(r);
    if (r == 0) parameters.call.trace = trace.view();
    data.launch(r, parameters);
  }
  data.wait();
  expect(data.count_wrong(1) == 0, "a traced call computes what others do");
  const NotedWorks found = trace.noted();
  std::map<int32_t, std::set<int64_t>> noted;
  for (const NotedWork& n : found.works) noted[n.note.role].insert(n.note.work);
  const auto works = [&](int32_t role) { return noted[role].size(); };
  using moe_dispatch::Roles;
  expect(works(Roles::number("compute")) == static_cast<size_t>(data.tiles(0)), "each tile is noted");
  expect(works(Roles::number("push")) == 4, "own rounds are pushed");
  expect(works(Roles::number("pack")) == 4 && works(Roles::number("send")) == 4, "and packed and sent");
  expect(works(Roles::number("forward")) == 1, "and the partner's is forwarded");
  expect(found.dropped == 0, "and there is room for all notes");
}

int run(const std::string& part) {
  if (part == "--sanitized") {
    test_sizes_of<MoeCase>(small_moe_sizes(), "", 2, kSanitizedPatienceNs);
    return verdict_of_claims();
  }
  test_sizes_of<MoeCase>(moe_sizes(), part);
  if (part.empty() || part == "in a row") {
    test_calls_in_a_row_of<MoeCase>(in_a_row({4}, Personality::rc));
    test_calls_in_a_row_of<MoeCase>(in_a_row({2, 2}, Personality::srd));
  }
  if (part.empty() || part == "graph") test_graph_replay_of<MoeCase>(in_a_row({4}, Personality::rc));
  if (part.empty() || part == "trace") test_trace();
  if (part.empty() || part == "faults") {
    test_faults();
    test_sizes_of<MoeCase>(moe_sizes(), "two ranks");  // the context works after faults
  }
  return verdict_of_claims();
}

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  tilewire::prepare_for_waiting_kernels();
  return tilewire::run_gpu_program([&] { return tilewire::run(tilewire::words_without_gpus(count, words)); });
}
