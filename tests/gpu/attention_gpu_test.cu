// The fused kernel of ring attention on virtual clusters: each element of results and logarithms against fp64, the same bits
// each time and on any cluster, calls in a row, graphs, faults and traces.
//   attention_gpu_test [PART OF A NAME]
//   attention_gpu_test --sanitized     small sizes and long deadlines, for compute-sanitizer
#include "attention_sizes.h"
#include "trace_buffer.cuh"

#include "ops/attention/roles.h"

#include <cstring>
#include <map>

namespace tilewire {
namespace {

AttentionSize small(const std::vector<int32_t>& widths, Personality personality, int64_t window) {
  return {.name = "",
          .rows = {130, 64, 200, 257},
          .batch = 2,
          .is_causal = true,
          .window = window,
          .group_pairs = 2,
          .widths = widths,
          .personality = personality};
}

// The sizes whose name has the part, with the worst error of each.
void test_sizes(const std::vector<AttentionSize>& sizes, const std::string& part, Epoch calls,
                uint64_t patience_ns = kPatienceNs) {
  for (const AttentionSize& size : sizes) {
    if (size.name.find(part) == std::string::npos) continue;
    std::printf("%-40s ", size.name.c_str());
    std::fflush(stdout);  // before what may never end
    AttentionCase data(size, kWrap, patience_ns);
    int64_t wrong = 0;
    for (Epoch epoch = kWrap; epoch < kWrap + calls && wrong == 0; ++epoch) {
      data.run(epoch);
      wrong += data.count_wrong(epoch);
    }
    expect(wrong == 0, size.name);
    std::printf("%s, error %.3f of o, %.3f of lse\n", data.kernel(0).form().name, data.worst_out(), data.worst_lse());
    std::fflush(stdout);
  }
}

void test_same_bits(const AttentionSize& size) {
  AttentionCase data(size, 1, kPatienceNs);
  std::vector<std::vector<uint16_t>> first;
  bool is_same = true;
  for (Epoch epoch = 1; epoch <= 8; ++epoch) {
    data.prepare(epoch);
    data.set_salt(5);
    for (int32_t r = 0; r < data.ranks(); ++r) data.launch(r, data.parameters(r));
    data.wait();
    for (int32_t r = 0; r < data.ranks(); ++r) {
      if (epoch == 1) {
        first.push_back(data.out(r));
      } else {
        is_same = is_same && first[static_cast<size_t>(r)] == data.out(r);
      }
    }
  }
  expect(is_same, "eight calls give the same bits");
}

// A peer that never comes: the call ends at its deadline, and what is not finished is NaN.
void test_deadline() {
  AttentionCase data({.name = "", .rows = {200, 130}}, 5, 300'000'000);
  data.prepare(5, kUnwritten);
  data.launch(0, data.parameters(0));
  data.wait();
  const FaultRecord& f = data.cluster().fault(0);
  expect(f.state == FaultRecord::kComplete && f.kind == KernelFaultKind::deadline,
         "a peer that never comes is a fault");
  expect(data.count_numbers(0) == 0, "results without its keys are NaN");
}

void test_trace() {
  AttentionCase data(small({2, 2}, Personality::rc, 0), 1, kPatienceNs);
  TraceBuffer trace(data.kernel(0).ctas(), 256);
  data.prepare(1);
  for (int32_t r = 0; r < data.ranks(); ++r) {
    attention::FusedParameters parameters = data.parameters(r);
    if (r == 0) parameters.call.trace = trace.view();
    data.launch(r, parameters);
  }
  data.wait();
  expect(data.count_wrong(1) == 0, "a traced call computes what others do");
  std::map<int32_t, std::map<int64_t, int>> noted;  // by role, then by work
  const NotedWorks found = trace.noted();
  for (const NotedWork& n : found.works) ++noted[n.note.role][n.note.work];
  expect_in_order(found);
  expect(static_cast<int64_t>(noted[attention::kComputeRole].size()) == data.parameters(0).schedule.items(),
         "each item is noted");
  expect(found.dropped == 0, "and no note was lost");
  for (const auto& [role, works] : noted) std::printf("  role %d: %zu works noted\n", role, works.size());
}

void test_faults() {
  const AttentionSize two{.name = "", .rows = {200, 130}};
  const auto nothing_finished = [](const AttentionCase& data) {
    expect(data.count_numbers(0) == 0, "what was not finished is NaN, or not written");
  };
  test_deadline();
  test_ranks_in_different_calls_of<AttentionCase>(two, [](const AttentionCase&) {});
  test_abort_by_the_host_of<AttentionCase>(two, nothing_finished);
}

int run(const std::string& part) {
  if (part == "--sanitized") {
    test_sizes(small_attention_sizes(), "", 2, kSanitizedPatienceNs);
    return verdict_of_claims();
  }
  test_sizes(attention_sizes(), part == "more" ? "none of these" : part, 3);
  if (part.empty() || part == "more") {
    test_same_bits(small({4}, Personality::rc, 0));
    test_same_bits(small({2, 2}, Personality::srd, 3));
    test_calls_in_a_row_of<AttentionCase>(small({4}, Personality::rc, 2));
    test_calls_in_a_row_of<AttentionCase>(small({2, 2}, Personality::rc, 0));
    test_graph_replay_of<AttentionCase>(small({4}, Personality::rc, 0));
    test_graph_replay_of<AttentionCase>(small({2, 2}, Personality::srd, 2));
    test_trace();
    test_faults();
    test_sizes(attention_sizes(), "two ranks", 2);  // the context works after faults
  }
  return verdict_of_claims();
}

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  tilewire::prepare_for_waiting_kernels();
  return tilewire::run_gpu_program([&] { return tilewire::run(tilewire::words_without_gpus(count, words)); });
}
