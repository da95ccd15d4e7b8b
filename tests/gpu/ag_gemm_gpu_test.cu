// The fused AllGather+GEMM on virtual nodes of 1, 2 and 4 ranks: every element of every call bit for bit, and the ways
// in which a call ends early.
//   ag_gemm_gpu_test [--gpus] [PART OF A NAME]    --gpus spreads the ranks over all GPUs
//   ag_gemm_gpu_test --sanitized                  small sizes and long deadlines, for compute-sanitizer
#include "fused_case.cuh"
#include "fused_faults.cuh"
#include "gpu_program.cuh"
#include "ops/ag_gemm/device_roles.h"
#include "trace_buffer.cuh"

#include <map>
#include <string>
#include <tuple>

namespace tilewire {
namespace {

constexpr uint64_t kPatienceNs = 2'000'000'000, kSanitizedPatienceNs = 60'000'000'000;
constexpr Epoch kWrap = (Epoch{1} << 32) - 3;
constexpr uint32_t kMostDelayUs = 200;  // of a rank, at random, before each replay

void test_sizes(const std::vector<FusedSize>& sizes, const std::string& part, Epoch calls, uint64_t patience_ns) {
  for (const FusedSize& size : sizes) {
    if (size.name.find(part) == std::string::npos) continue;
    FusedCase data(size, kWrap, patience_ns);
    int64_t wrong = 0;
    for (Epoch epoch = kWrap; epoch < kWrap + calls && wrong == 0; ++epoch) {
      data.run(epoch);
      wrong += data.count_wrong(epoch);
    }
    if (wrong != 0) std::printf("  %lld wrong: %s\n", static_cast<long long>(wrong), size.name.c_str());
    expect(wrong == 0, size.name.c_str());
    std::printf("%-28s %s, %d CTAs a rank\n", size.name.c_str(), data.kernel(0).form().name, data.kernel(0).ctas());
    std::fflush(stdout);
  }
}

// Calls behind each other without the host between them: a rank may be a call ahead of another.
void test_calls_in_a_row(const std::vector<int32_t>& widths, Personality personality) {
  FusedCase data(
      {.name = "", .rows = {130, 70, 64, 1}, .k = 72, .cols = {96}, .widths = widths, .personality = personality}, 1,
      kPatienceNs);
  constexpr Epoch kCalls = 200;
  data.prepare(1);
  for (Epoch epoch = 1; epoch <= kCalls; ++epoch) {
    for (int32_t r = 0; r < data.ranks(); ++r) data.launch(r, data.parameters(r));
  }
  data.wait();
  expect(data.count_wrong(kCalls) == 0 && data.count_wrong(kCalls - 1) == 0, "200 calls in a row");
}

// A captured call, with inputs that a kernel in front of it writes anew: replayed, and compared now and then.
void test_graph_replay(const std::vector<int32_t>& widths, Personality personality, int32_t push_ctas) {
  FusedCase data({.name = "",
                  .rows = {130, 70, 64, 33},
                  .k = 72,
                  .cols = {96},
                  .wants_gathered = true,
                  .push_ctas = push_ctas,
                  .widths = widths,
                  .personality = personality},
                 kWrap, kPatienceNs);
  DeviceBuffer<int64_t> salts(data.ranks());
  salts.fill_bytes(0);
  data.prepare(kWrap);
  std::vector<cudaGraphExec_t> graphs(static_cast<size_t>(data.ranks()));
  for (int32_t r = 0; r < data.ranks(); ++r) {
    const cudaStream_t stream = data.cluster().stream(r);
    data.cluster().use(r);
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "beginning a capture");
    data.enqueue_inputs(r, salts.data() + r, kMostDelayUs);
    data.enqueue(r, data.parameters(r));
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream, &graph), "ending a capture");
    check_cuda(cudaGraphInstantiate(&graphs[static_cast<size_t>(r)], graph, 0), "making a graph");
    check_cuda(cudaGraphDestroy(graph), "making a graph");
  }
  int64_t replays = 0, wrong = 0;
  for (const int64_t until : {1, 2, 3, 500, 1000}) {
    data.cluster().start_wire();
    for (; replays < until; ++replays) {
      for (int32_t r = 0; r < data.ranks(); ++r) {
        data.cluster().use(r);
        check_cuda(cudaGraphLaunch(graphs[static_cast<size_t>(r)], data.cluster().stream(r)), "launching a graph");
      }
    }
    data.wait();
    data.set_salt(replays);
    wrong += data.count_wrong(kWrap + static_cast<Epoch>(replays) - 1);
  }
  expect(wrong == 0, "1000 replays of a graph, inputs changed in place");
  for (cudaGraphExec_t graph : graphs) cudaGraphExecDestroy(graph);
}

// How often rank 0 has noted each piece of work, by role, source, number and link.
using Noted = std::map<std::tuple<int32_t, int32_t, int64_t, TraceLink>, int64_t>;

Noted count_notes(const NotedWorks& found) {
  Noted noted;
  bool is_in_order = true;
  for (const NotedWork& n : found.works) {
    ++noted[{n.note.role, n.note.source, n.note.work, n.note.link}];
    is_in_order = is_in_order && n.note.t_wait_ns > 0 && n.note.t_wait_ns <= n.note.t_begin_ns &&
                  n.note.t_begin_ns <= n.note.t_end_ns;
  }
  expect(is_in_order, "each note waits, begins and ends");
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
  const int64_t groups = form.cluster_ctas() * (std::string(form.name).starts_with("ping_pong") ? 1 : kComputeGroups);
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
    test_sizes(small_fused_sizes(), "", 2, kSanitizedPatienceNs);
    return verdict_of_claims();
  }
  test_sizes(fused_sizes(), part, 6, kPatienceNs);
  if (part.empty() || part == "faults") {
    test_calls_in_a_row({4}, Personality::rc);
    test_calls_in_a_row({2, 2}, Personality::rc);
    test_calls_in_a_row({1, 3}, Personality::srd);
    test_graph_replay({4}, Personality::rc, 0);
    test_graph_replay({2, 2}, Personality::srd, 2);
    test_graph_replay({2, 2}, Personality::rc, 0);
    test_trace(0);
    test_trace(2);
    test_fused_faults();
    test_sizes(fused_sizes(), "two ranks", 6, kPatienceNs);  // the context works after faults
  }
  return verdict_of_claims();
}

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  tilewire::prepare_for_waiting_kernels();
  return tilewire::run_gpu_program([&] { return tilewire::run(tilewire::words_without_gpus(count, words)); });
}
