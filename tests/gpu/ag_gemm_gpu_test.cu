// The fused AllGather+GEMM on virtual nodes of 1, 2 and 4 ranks: every element of every call bit for bit, and the ways
// in which a call ends early.
//   ag_gemm_gpu_test [--gpus] [PART OF A NAME]    --gpus spreads the ranks over all GPUs
//   ag_gemm_gpu_test --sanitized                  small sizes and long deadlines, for compute-sanitizer
#include "fused_calls.cuh"
#include "fused_case.cuh"
#include "fused_faults.cuh"
#include "gpu_program.cuh"
#include "ops/ag_gemm/roles.h"
#include "trace_buffer.cuh"

#include <map>
#include <string>
#include <tuple>

namespace tilewire {
namespace {

FusedSize in_a_row(const std::vector<int32_t>& widths, Personality personality) {
  return {.name = "", .rows = {130, 70, 64, 1}, .k = 72, .cols = {96}, .widths = widths, .personality = personality};
}
FusedSize replayed(const std::vector<int32_t>& widths, Personality personality, int32_t push_ctas) {
  return {.name = "",
          .rows = {130, 70, 64, 33},
          .k = 72,
          .cols = {96},
          .wants_gathered = true,
          .push_ctas = push_ctas,
          .widths = widths,
          .personality = personality};
}

// How often rank 0 has noted each piece of work, by role, source, number and link.
using Noted = std::map<std::tuple<int32_t, int32_t, int64_t, TraceLink>, int64_t>;

Noted count_notes(const NotedWorks& found) {
  Noted noted;
  for (const NotedWork& n : found.works) ++noted[{n.note.role, n.note.source, n.note.work, n.note.link}];
  expect_in_order(found);
  return noted;
}

// One traced call of two nodes of two ranks.
void test_trace(int32_t push_ctas) {
  const FusedSize size{.name = "",
                       .rows = {300, 200, 64, 130},
                       .k = 136,
                       .cols = {400},
                       .chunk_rows = 50,
                       .push_ctas = push_ctas,
                       .widths = {2, 2}};
  FusedCase data(size, 1, kPatienceNs);
  TraceBuffer trace(data.kernel(0).ctas(), 64), narrow(data.kernel(1).ctas(), 1);
  data.prepare(1);
  for (int32_t r = 0; r < data.ranks(); ++r) {
    ag_gemm::FusedParameters parameters = data.parameters(r);
    if (r == 0) parameters.call.trace = trace.view();
    if (r == 1) parameters.call.trace = narrow.view();
    data.launch(r, parameters);
  }
  data.wait();
  expect(data.count_wrong(1) == 0, "a traced call computes what others do");
  const NotedWorks found = trace.noted();
  const Noted noted = count_notes(found);
  const auto has = [&](int64_t times, int32_t role, int32_t source, int64_t work, TraceLink link) {
    const auto piece = noted.find({role, source, work, link});
    expect(piece != noted.end() && piece->second == times, "each piece of work is noted by who did it");
  };
  const FormNumbers& form = data.kernel(0).form();
  const int64_t groups = std::string(form.name).starts_with("ping_pong") ? 1 : kComputeGroups;
  const int64_t tiles = data.parameters(0).schedule.grid.tiles();
  for (int64_t tile = 0; tile < tiles; ++tile) has(groups, ag_gemm::kComputeRole, -1, tile, TraceLink::none);
  for (int32_t chunk = 0; chunk < 6; ++chunk) {
    has(1, ag_gemm::kPushRole, 0, chunk, TraceLink::copy);
    has(1, ag_gemm::kPushRole, 0, chunk, TraceLink::node);
    has(1, ag_gemm::kSendRole, 0, chunk, TraceLink::network);
  }
  for (int32_t chunk = 0; chunk < 2; ++chunk) has(1, ag_gemm::kForwardRole, 2, chunk, TraceLink::node);
  expect(found.dropped == 0 && static_cast<int64_t>(noted.size()) == tiles + 3 * 6 + 2, "and nothing else");
  expect(narrow.noted().dropped > 0, "notes without room are counted");
}

int run(const std::string& part) {
  if (part == "--sanitized") {
    test_sizes_of<FusedCase>(small_fused_sizes(), "", 2, kSanitizedPatienceNs);
    return verdict_of_claims();
  }
  test_sizes_of<FusedCase>(fused_sizes(), part);
  if (part.empty() || part == "faults") {
    test_calls_in_a_row_of<FusedCase>(in_a_row({4}, Personality::rc));
    test_calls_in_a_row_of<FusedCase>(in_a_row({2, 2}, Personality::rc));
    test_calls_in_a_row_of<FusedCase>(in_a_row({1, 3}, Personality::srd));
    test_graph_replay_of<FusedCase>(replayed({4}, Personality::rc, 0));
    test_graph_replay_of<FusedCase>(replayed({2, 2}, Personality::srd, 2));
    test_graph_replay_of<FusedCase>(replayed({2, 2}, Personality::rc, 0));
    test_trace(0);
    test_trace(2);
    test_fused_faults();
    test_sizes_of<FusedCase>(fused_sizes(), "two ranks");  // the context works after faults
  }
  return verdict_of_claims();
}

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  tilewire::prepare_for_waiting_kernels();
  return tilewire::run_gpu_program([&] { return tilewire::run(tilewire::words_without_gpus(count, words)); });
}
