// What is tested alike of the fused kernels of all ops. A Case is one problem on a virtual cluster:
//   prepare(epoch), run(epoch), parameters(rank), launch(rank, parameters), wait(), count_wrong(epoch)
//   cluster(), ranks(), kernel(rank)
//   set_salt(salt), enqueue_inputs(rank, salt in device memory, most_delay_us), enqueue(rank, parameters)   for calls whose
//                                                                   inputs a kernel writes, in a capture
#pragma once

#include "gpu_program.cuh"
#include "virtual_cluster.cuh"

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace tilewire {

constexpr uint64_t kPatienceNs = 2'000'000'000;
constexpr uint64_t kSanitizedPatienceNs = 60'000'000'000;  // under compute-sanitizer
constexpr Epoch kWrap = (Epoch{1} << 32) - 3;
constexpr int kUnwritten = 0x11;        // no NaN, so that unfinished output can be told from what nobody wrote
constexpr uint32_t kMostDelayUs = 200;  // of a rank, at random, before each replay

inline double milliseconds(const std::chrono::steady_clock::time_point& begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// One call of all ranks, which are launched in another order each time.
template <class Case>
void run_call(Case& data, Epoch epoch) {
  data.prepare(epoch);
  for (int32_t i = 0; i < data.ranks(); ++i) {
    const auto r = static_cast<int32_t>((static_cast<uint64_t>(i) + epoch) % static_cast<uint64_t>(data.ranks()));
    data.launch(r, data.parameters(r));
  }
  data.wait();
}

// Fault records of a cluster, printed.
inline int64_t count_records(const VirtualCluster& cluster) {
  int64_t records = 0;
  for (int32_t r = 0; r < cluster.ranks(); ++r) {
    const FaultRecord& f = cluster.fault(r);
    if (f.state == FaultRecord::kNone) continue;
    std::printf("  rank %d left a record: kind %d role %d cta %d word %llu expected %llu seen %llu epoch %llu\n", r,
                static_cast<int>(f.kind), f.role, f.cta, static_cast<unsigned long long>(f.word),
                static_cast<unsigned long long>(f.expected), static_cast<unsigned long long>(f.seen),
                static_cast<unsigned long long>(f.epoch));
    ++records;
  }
  return records;
}

// Calls of each size whose name has that part, each checked as a whole, over the wrap of 32 bits.
template <class Case, class Sizes>
void test_sizes_of(const Sizes& sizes, const std::string& part, Epoch calls = 6, uint64_t patience_ns = kPatienceNs) {
  for (const auto& size : sizes) {
    if (size.name.find(part) == std::string::npos) continue;
    const auto begin = std::chrono::steady_clock::now();
    Case data(size, kWrap, patience_ns);
    const double made_ms = milliseconds(begin);
    double compared_ms = 0;
    int64_t wrong = 0;
    for (Epoch epoch = kWrap; epoch < kWrap + calls && wrong == 0; ++epoch) {
      data.run(epoch);
      const auto called = std::chrono::steady_clock::now();
      wrong += data.count_wrong(epoch);
      compared_ms += milliseconds(called);
    }
    if (wrong != 0) std::printf("  %lld wrong: %s\n", static_cast<long long>(wrong), size.name.c_str());
    expect(wrong == 0, size.name.c_str());
    std::printf("%-28s %s, %d CTAs a rank; %.0f ms to make, %.0f to call, %.0f to compare\n", size.name.c_str(),
                data.kernel(0).form().name, data.kernel(0).ctas(), made_ms, milliseconds(begin) - made_ms - compared_ms,
                compared_ms);
    std::fflush(stdout);
  }
}

// Two ranks in calls of other hashes. check_unfinished(case): what rank 0 must not have finished.
template <class Case, class Size, class Check>
void test_ranks_in_different_calls_of(const Size& size, const Check& check_unfinished) {
  Case data(size, 5, kPatienceNs);
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
  check_unfinished(data);
}

// The host ends the call of rank 0, which waits for another one. check_unfinished: likewise.
template <class Case, class Size, class Check>
void test_abort_by_the_host_of(const Size& size, const Check& check_unfinished) {
  Case data(size, 5, kPatienceNs);
  data.prepare(5, kUnwritten);
  const auto begin = std::chrono::steady_clock::now();
  data.launch(0, data.parameters(0));
  data.cluster().abort_from_host(0);
  data.wait();
  expect(milliseconds(begin) < 1000, "the host's abort word ends a call");
  expect(data.cluster().fault(0).state == FaultRecord::kNone, "an abort by the host is no fault of the kernel");
  check_unfinished(data);
}

// Calls behind each other without the host between them: a rank may be a call ahead of another.
template <class Case, class Size>
void test_calls_in_a_row_of(const Size& size) {
  Case data(size, 1, kPatienceNs);
  constexpr Epoch kCalls = 200;
  data.prepare(1);
  for (Epoch epoch = 1; epoch <= kCalls; ++epoch) {
    for (int32_t r = 0; r < data.ranks(); ++r) data.launch(r, data.parameters(r));
  }
  data.wait();
  expect(data.count_wrong(kCalls) == 0 && data.count_wrong(kCalls - 1) == 0, "200 calls in a row");
}

// A captured call, with inputs that a kernel in front of it writes anew: replayed, and compared now and then.
template <class Case, class Size>
void test_graph_replay_of(const Size& size) {
  Case data(size, kWrap, kPatienceNs);
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

}  // namespace tilewire
