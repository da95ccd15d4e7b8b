// What the SRD transport and the proxy cost for each request, beside a bare loop of the same calls of the library. The
// device carries each request at once, in the thread that posts it.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/bench_row.h"
#include "srd/engine_rig.h"
#include "srd/raw_queue.h"

namespace tilewire {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPosts = 20'000;
constexpr int kBatch = 32;

double ns_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

double median(std::vector<double>& times) {
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

// Batches of immediates from one queue pair to itself, and both completions of each.
double ns_a_bare_post(RawQueue& queue) {
  const auto begin = Clock::now();
  for (int posted = 0; posted < kPosts; posted += kBatch) {
    queue.ex()->wr_start(queue.ex());
    for (int i = 0; i < kBatch; ++i) queue.add();
    if (queue.ex()->wr_complete(queue.ex()) != 0) std::abort();
    for (int left = 2 * kBatch; left > 0;) left -= queue.sent.take_all() + queue.arrived.take_all();
  }
  return ns_since(begin) / kPosts;
}

// Two transports in one thread: rank 0 sends, rank 1 looks.
class TwoRanks {
 public:
  TwoRanks() {
    options_.verbs_library = options_.efa_library = FakeVerbs::library();
    const SrdLibraries libraries = load_srd_libraries(options_);
    for (int32_t r = 0; r < 2; ++r) {
      TransportContext context{.rank = Rank{r}, .ranks = 2, .peers = {Rank{1 - r}}, .arena = arenas_[r].data()};
      context.arena_bytes = arenas_[r].size();
      ranks_[r] = make_srd_port_transport(context, options_, libraries,
                                          open_port(*libraries.verbs, srd_port_wish(libraries, options_), context));
      ranks_[r]->register_arena(0, arenas_[r].size());
    }
    const std::vector<Bytes> addresses{ranks_[0]->address(), ranks_[1]->address()};
    for (const auto& rank : ranks_) rank->connect(addresses, std::chrono::seconds(1));
  }

  double ns_a_post() {
    const std::vector<WriteRequest> batch(
        kBatch, {.kind = RequestKind::write_with_immediate, .peer = Rank{1}, .bytes = 64, .immediate = 3});
    std::array<Event, 64> events;
    const auto begin = Clock::now();
    for (int posted = 0; posted < kPosts;) {
      posted += static_cast<int>(ranks_[0]->post(batch));
      for (const auto& rank : ranks_) {
        while (rank->poll(events) == events.size()) {
        }
      }
    }
    return ns_since(begin) / kPosts;
  }

 private:
  SrdOptions options_;
  std::array<std::vector<std::byte>, 2> arenas_{std::vector<std::byte>(4096), std::vector<std::byte>(4096)};
  std::array<std::unique_ptr<Transport>, 2> ranks_;
};

// Posts, completions and arrivals of one thread. Goal: 1 M posts/s.
void BM_SrdPosts(benchmark::State& state) {
  FakeVerbs::set("direct=1");
  BenchRow row(state, 1);
  TwoRanks ranks;
  RawQueue bare;
  std::vector<double> ours_ns, bare_ns;
  for (auto _ : state) {
    bare_ns.push_back(ns_a_bare_post(bare));
    ours_ns.push_back(ranks.ns_a_post());
    state.SetIterationTime(ours_ns.back() * kPosts * 1e-9);
  }
  const double rate = 1e3 / median(ours_ns);
  row.report({.ours = rate,
              .baseline = 1e3 / median(bare_ns),
              .baseline_name = "bare loop of library calls",
              .unit = "M posts/s",
              .goal = ">= 1 M posts/s",
              .meets_goal = rate >= 1});
}
BENCHMARK(BM_SrdPosts)->UseManualTime();

// From the command ring to the completion, over a device whose calls do next to nothing. Goal: 1 us.
void BM_SrdProxyAdds(benchmark::State& state) {
  FakeVerbs::set("direct=1");
  BenchRow row(state, 1);
  SrdEngineRig rig;
  RawQueue bare;
  std::vector<double> ours_ns, bare_ns;
  for (auto _ : state) {
    bare_ns.push_back(ns_a_bare_post(bare));
    const auto begin = Clock::now();
    rig.call(kPosts);
    ours_ns.push_back(ns_since(begin) / kPosts);
    state.SetIterationTime(ours_ns.back() * kPosts * 1e-9);
  }
  const double took = median(ours_ns);
  row.report({.ours = took,
              .baseline = median(bare_ns),
              .baseline_name = "bare loop of library calls that carry 16 bytes",
              .unit = "ns",
              .is_smaller_better = true,
              .goal = "<= 1000 ns of our own",
              .meets_goal = took <= 1000});
}
BENCHMARK(BM_SrdProxyAdds)->UseManualTime();

}  // namespace
}  // namespace tilewire
