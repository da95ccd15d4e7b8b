// The fused AllGather+GEMM on virtual nodes of 1, 2 and 4 ranks: every element of every call bit for bit, and the ways
// in which a call ends early. ag_gemm_gpu_test [PART OF A NAME | --gpus PART]: `--gpus` spreads the ranks over all GPUs.
#include "fused_case.cuh"
#include "gpu_program.cuh"
#include "ops/ag_gemm/device_roles.h"
#include "trace_buffer.cuh"

#include <tilewire/error.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>

namespace tilewire {
namespace {

constexpr uint64_t kPatienceNs = 2'000'000'000;
constexpr int kUnwritten = 0x11;  // no NaN, so that unfinished output can be told from what nobody wrote
constexpr Epoch kWrap = (Epoch{1} << 32) - 3;

std::vector<FusedSize> sizes() {
  const std::vector<int64_t> four{300, 0, 517, 130};
  return {
      {.name = "one rank", .rows = {400}, .k = 200, .cols = {320}, .ctas = 60},
      {.name = "two ranks", .rows = {384, 256}, .k = 512, .cols = {512}, .ctas = 48},
      {.name = "four uneven ranks, ragged", .rows = four, .k = 136, .cols = {333}},
      {.name = "depth of no whole 16 bytes", .rows = {70, 90}, .k = 75, .cols = {100}},
      {.name = "rows of a apart", .rows = {200, 129}, .k = 136, .cols = {130}, .a_padding = 24},
      {.name = "weights as [K, N]", .rows = four, .k = 136, .cols = {333}, .is_b_n_major = true},
      {.name = "fp16", .rows = four, .k = 136, .cols = {333}, .type = DataType::fp16},
      {.name = "fp16, [K, N], bias fp16",
       .rows = {90, 300},
       .k = 264,
       .cols = {77},
       .type = DataType::fp16,
       .is_b_n_major = true,
       .has_bias = true,
       .is_bias_fp32 = false},
      {.name = "two weights, bias", .rows = {250, 301}, .k = 192, .cols = {200, 77}, .has_bias = true},
      {.name = "two weights, one empty",
       .rows = {250, 301},
       .k = 192,
       .cols = {0, 77},
       .has_bias = true,
       .is_bias_fp32 = false},
      {.name = "cooperative 128x256",
       .rows = {513, 300, 200, 64},
       .k = 328,
       .cols = {520},
       .has_bias = true,
       .tile_rows = 256,
       .tile_cols = 256},
      {.name = "ping-pong 128x192",
       .rows = {513, 300, 200, 64},
       .k = 328,
       .cols = {520},
       .has_bias = true,
       .tile_rows = 256,
       .tile_cols = 192},
      {.name = "cooperative, [K, N]",
       .rows = {300, 200},
       .k = 328,
       .cols = {520},
       .is_b_n_major = true,
       .tile_rows = 256,
       .tile_cols = 256},
      {.name = "ping-pong, [K, N], fp16",
       .rows = {300, 200},
       .k = 328,
       .cols = {520},
       .type = DataType::fp16,
       .is_b_n_major = true,
       .tile_rows = 256,
       .tile_cols = 192},
      {.name = "many pushers",
       .rows = {300, 310},
       .k = 136,
       .cols = {128},
       .chunk_rows = 8,
       .ctas = 30,
       .push_ctas = 8},
      {.name = "unfused", .rows = {300, 310}, .k = 136, .cols = {128}, .is_fused = false},
      {.name = "copies beside the tiles", .rows = {300, 310}, .k = 136, .cols = {128}, .chunk_rows = 3, .push_ctas = 0},
      {.name = "copies beside, cooperative",
       .rows = {513, 300, 200, 64},
       .k = 328,
       .cols = {520},
       .chunk_rows = 4,
       .push_ctas = 0,
       .tile_rows = 256,
       .tile_cols = 256},
      {.name = "copies beside, ping-pong",
       .rows = {513, 300, 200, 64},
       .k = 328,
       .cols = {520},
       .a_padding = 8,
       .chunk_rows = 4,
       .push_ctas = 0,
       .tile_rows = 256,
       .tile_cols = 192},
      {.name = "copies beside, few tiles", .rows = {30, 20}, .k = 64, .cols = {32}, .chunk_rows = 1, .push_ctas = 0},
      {.name = "copies beside, 2x2 nodes",
       .rows = {384, 256, 300, 129},
       .k = 512,
       .cols = {512},
       .chunk_rows = 8,
       .push_ctas = 0,
       .widths = {2, 2}},
      {.name = "copies beside, 1+3 nodes, relay",
       .rows = four,
       .k = 136,
       .cols = {333},
       .is_b_n_major = true,
       .chunk_rows = 5,
       .push_ctas = 0,
       .widths = {1, 3},
       .personality = Personality::srd},
      {.name = "copies beside, 3+1 nodes, ping-pong",
       .rows = {513, 300, 200, 64},
       .k = 328,
       .cols = {520},
       .chunk_rows = 4,
       .push_ctas = 0,
       .tile_rows = 256,
       .tile_cols = 192,
       .widths = {3, 1}},
      {.name = "copies beside, no rows, 2x2 nodes",
       .rows = {0, 0, 0, 0},
       .k = 64,
       .cols = {64},
       .push_ctas = 0,
       .widths = {2, 2}},
      {.name = "own rows copied too", .rows = {300, 517}, .k = 136, .cols = {333}, .own_in_place = false},
      {.name = "2x2 nodes", .rows = {384, 256, 300, 129}, .k = 512, .cols = {512}, .widths = {2, 2}},
      {.name = "2x2 nodes, relay",
       .rows = {384, 256, 300, 129},
       .k = 512,
       .cols = {512},
       .widths = {2, 2},
       .personality = Personality::srd},
      {.name = "2x2 nodes, no order",
       .rows = four,
       .k = 136,
       .cols = {333},
       .chunk_rows = 16,
       .widths = {2, 2},
       .personality = Personality::relaxed},
      {.name = "3+1 nodes", .rows = four, .k = 136, .cols = {333}, .has_bias = true, .widths = {3, 1}},
      {.name = "1+1+2 nodes, relay",
       .rows = four,
       .k = 136,
       .cols = {333, 40},
       .chunk_rows = 16,
       .widths = {1, 1, 2},
       .personality = Personality::srd},
      {.name = "2+3 nodes",
       .rows = {130, 60, 0, 1, 300},
       .k = 200,
       .cols = {128},
       .chunk_rows = 16,
       .ctas = 20,
       .widths = {2, 3}},
      {.name = "2x2 nodes, unfused, cooperative",
       .rows = {300, 310, 64, 512},
       .k = 136,
       .cols = {300},
       .tile_rows = 256,
       .tile_cols = 256,
       .is_fused = false,
       .widths = {2, 2}},
      {.name = "no rows at all, 2x2 nodes", .rows = {0, 0, 0, 0}, .k = 64, .cols = {64}, .widths = {2, 2}},
      {.name = "no rows at all", .rows = {0, 0}, .k = 64, .cols = {64}},
      {.name = "no columns at all", .rows = {100, 20}, .k = 64, .cols = {0}},
  };
}

void test_sizes(const std::string& part) {
  for (const FusedSize& size : sizes()) {
    if (size.name.find(part) == std::string::npos) continue;
    FusedCase data(size, kWrap, kPatienceNs);
    int64_t wrong = 0;
    for (Epoch epoch = kWrap; epoch < kWrap + 6 && wrong == 0; ++epoch) {
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
    data.enqueue_inputs(r, salts.data() + r);
    ag_gemm::FusedParameters parameters = data.parameters(r);
    data.kernel(r).launch(parameters, stream);
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

double milliseconds(const std::chrono::steady_clock::time_point& begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// Elements of rows [begin, end) that are not NaN, and elements elsewhere that are neither right nor NaN.
void check_unfinished(const FusedCase& data, int32_t r, int64_t begin, int64_t end) {
  const std::vector<uint16_t> seen = data.out(r, 0), right = data.expected(r, 0);
  const int64_t pitch = data.out_pitch(0), n = static_cast<int64_t>(right.size()) / data.total_rows();
  int64_t finished = 0, neither = 0;
  for (int64_t row = 0; row < data.total_rows(); ++row) {
    for (int64_t c = 0; c < n; ++c) {
      const uint16_t got = seen[static_cast<size_t>(row * pitch + c)];
      if (row >= begin && row < end) {
        finished += got != FusedCase::kPoison;
      } else {
        neither += got != FusedCase::kPoison && got != right[static_cast<size_t>(row * n + c)];
      }
    }
  }
  expect(finished == 0, "output whose rows never came is NaN");
  expect(neither == 0, "all other output is right or NaN");
}

const FusedSize kFaultSize{.name = "", .rows = {300, 320}, .k = 136, .cols = {256}};

// Rank 0's pushers are told that there is one more of them, so that chunk 2 is nobody's.
void test_withheld_chunk() {
  FusedCase data(kFaultSize, 5, 20'000'000);
  data.prepare(5, kUnwritten);
  ag_gemm::FusedParameters withholding = data.parameters(0);
  withholding.schedule.push_workers = 3;
  const auto begin = std::chrono::steady_clock::now();
  data.launch(0, withholding);
  data.launch(1, data.parameters(1));
  data.wait();
  const double ms = milliseconds(begin);
  const uint32_t word = data.cluster().layout().flags.chunk(ag_gemm::kShardArrived, Rank{0}, Chunk{2});
  int records = 0;
  bool is_right_word = true;
  for (int32_t r = 0; r < 2; ++r) {
    const FaultRecord& f = data.cluster().fault(r);
    if (f.state != FaultRecord::kComplete) continue;
    ++records;
    is_right_word = is_right_word && f.kind == KernelFaultKind::deadline && f.word == word && f.expected == 5 &&
                    f.seen == 4 && f.rank == r && f.epoch == 5;
  }
  expect(ms >= 20 && ms < 1000, "a withheld chunk ends the call at its deadline");
  expect(records >= 1, "somebody leaves a record");
  expect(is_right_word, "the records name the chunk that was withheld");
  check_unfinished(data, 0, 0, 0);  // which reads its own rows where they are
  check_unfinished(data, 1, 128, 192);
  std::printf("withheld chunk: %.1f ms, %d records\n", ms, records);
}

void test_rank_that_never_comes() {
  FusedCase data(kFaultSize, 5, 20'000'000);
  data.prepare(5, kUnwritten);
  const auto begin = std::chrono::steady_clock::now();
  data.launch(0, data.parameters(0));
  data.wait();
  const FaultRecord& f = data.cluster().fault(0);
  const double ms = milliseconds(begin);
  expect(ms >= 20 && ms < 1000, "a rank that never comes ends the call at its deadline");
  expect(f.state == FaultRecord::kComplete && f.kind == KernelFaultKind::deadline, "and leaves a record");
  check_unfinished(data, 0, 512, 620);  // tiles with rows of rank 1 alone
}

void test_ranks_in_different_calls() {
  FusedCase data(kFaultSize, 5, kPatienceNs);
  data.prepare(5, kUnwritten);
  const auto begin = std::chrono::steady_clock::now();
  data.launch(0, data.parameters(0, 77));
  data.launch(1, data.parameters(1, 78));
  data.wait();
  expect(milliseconds(begin) < 1000, "ranks in different calls need no deadline to find out");
  int records = 0;
  bool is_mismatch = true;
  for (int32_t r = 0; r < 2; ++r) {
    const FaultRecord& f = data.cluster().fault(r);
    if (f.state != FaultRecord::kComplete) continue;
    ++records;
    is_mismatch = is_mismatch && f.kind == KernelFaultKind::mismatch && f.word == static_cast<uint64_t>(1 - r) &&
                  f.expected == 77u + static_cast<uint64_t>(r) && f.seen == 78u - static_cast<uint64_t>(r);
  }
  expect(records >= 1 && is_mismatch, "and the record has both values");
  check_unfinished(data, 0, 512, 620);
}

void test_abort_by_the_host() {
  FusedCase data(kFaultSize, 5, kPatienceNs);
  data.prepare(5, kUnwritten);
  const auto begin = std::chrono::steady_clock::now();
  data.launch(0, data.parameters(0));
  data.cluster().abort_from_host(0);
  data.wait();
  expect(milliseconds(begin) < 1000, "the host's abort word ends a call");
  expect(data.cluster().fault(0).state == FaultRecord::kNone, "an abort by the host is no fault of the kernel");
  check_unfinished(data, 0, 512, 620);
}

// The second call of rank 0 begins while the first one waits for rank 1.
void test_two_calls_at_once() {
  FusedCase data(kFaultSize, 5, kPatienceNs);
  data.prepare(5, kUnwritten);
  cudaStream_t other = nullptr;
  data.cluster().use(0);
  check_cuda(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "making a stream");
  const auto begin = std::chrono::steady_clock::now();
  ag_gemm::FusedParameters first = data.parameters(0), second = first;
  data.launch(0, first);
  data.kernel(0).launch(second, other);
  data.wait();
  check_cuda(cudaStreamSynchronize(other), "running two calls");
  expect(milliseconds(begin) < 1000, "two calls of a rank at once need no deadline to find out");
  const FaultRecord& f = data.cluster().fault(0);
  expect(f.state == FaultRecord::kComplete && f.kind == KernelFaultKind::busy, "and the record says so");
  cudaStreamDestroy(other);
}

// Rank 3 never comes: the entry rank of its node waits for it, too, and what it would forward is published to nobody.
void test_missing_rank_of_another_node(int32_t push_ctas) {
  FusedCase data(
      {.name = "", .rows = {200, 100, 150, 300}, .k = 136, .cols = {256}, .push_ctas = push_ctas, .widths = {2, 2}}, 5,
      20'000'000);
  data.prepare(5, kUnwritten);
  for (int32_t r = 0; r < 3; ++r) data.launch(r, data.parameters(r));
  data.wait();
  for (int32_t r = 0; r < 3; ++r) check_unfinished(data, r, 512, 750);
  const auto has_record = [&](int32_t r) {
    const FaultRecord& f = data.cluster().fault(r);
    return f.state == FaultRecord::kComplete && f.kind == KernelFaultKind::deadline;
  };
  expect(has_record(0) || has_record(1), "a rank of the other node leaves a record");
  expect(has_record(2), "and the one beside the missing rank");
}

template <class Change>
void expect_refusal(const char* name, const Change& change) {
  const FusedCase data(kFaultSize, 5, kPatienceNs);
  std::vector<DeviceMatrix> b{{reinterpret_cast<void*>(4096), 256, 136, 272, DataType::bf16}};
  std::vector<DeviceMatrix> out{{reinterpret_cast<void*>(4096), 620, 256, 512, DataType::bf16}};
  ag_gemm::FusedOperands operands{
      .a = {reinterpret_cast<void*>(4096), 300, 136, 272, DataType::bf16}, .b = b, .out = out, .bias = {}};
  change(operands, b[0], out[0]);
  try {
    (void)data.kernel(0).parameters(77, operands);
    expect(false, name);
  } catch (const Error& e) {
    expect(e.kind() == ErrorKind::invalid_argument && std::string(e.what()).find(name) != std::string::npos, e.what());
  }
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

void test_refusals() {
  expect_refusal("a does not fit", [](auto& o, auto&, auto&) { o.a.rows = 301; });
  expect_refusal("a is misaligned", [](auto& o, auto&, auto&) { o.a.data = reinterpret_cast<void*>(4098); });
  expect_refusal("a has a pitch", [](auto& o, auto&, auto&) { o.a.pitch_bytes = 274; });
  expect_refusal("b does not fit", [](auto&, auto& b, auto&) { b.cols = 137; });
  expect_refusal("out does not fit", [](auto&, auto&, auto& out) { out.type = DataType::fp16; });
  expect_refusal("one out for each", [](auto& o, auto&, auto&) { o.out = {}; });
}

int run(const std::string& part) {
  test_sizes(part);
  if (part.empty() || part == "faults") {
    test_calls_in_a_row({4}, Personality::rc);
    test_calls_in_a_row({2, 2}, Personality::rc);
    test_calls_in_a_row({1, 3}, Personality::srd);
    test_graph_replay({4}, Personality::rc, 0);
    test_graph_replay({2, 2}, Personality::srd, 2);
    test_graph_replay({2, 2}, Personality::rc, 0);
    test_withheld_chunk();
    test_rank_that_never_comes();
    test_ranks_in_different_calls();
    test_abort_by_the_host();
    test_two_calls_at_once();
    test_missing_rank_of_another_node(2);
    test_missing_rank_of_another_node(0);
    test_trace(0);
    test_trace(2);
    test_refusals();
    test_sizes("two ranks");  // the context works after faults
  }
  return verdict_of_claims();
}

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  tilewire::prepare_for_waiting_kernels();
  return tilewire::run_gpu_program([&] { return tilewire::run(tilewire::words_without_gpus(count, words)); });
}
