// For benches of ops: how well communication hides under computation, on ranks of 2+2 over the emulated network, at
// several ratios of communication to compute. A tile sleeps instead of being computed, since two cores cannot compute
// for four ranks at once; the data, the roles, the proxies and the network are real. All four times of a row are
// medians of the same run. An op's bench has, for its call,
//
//   struct Traits {
//     using Op
//     struct Buffers                             the memory of one rank
//     static constexpr int64_t kTiles            of one rank in a call
//     static constexpr int64_t kNetworkBytes     that one rank sends to the other node
//     // The call, fused or not; without `computes` it moves the same and has no tile. Each tile calls `tile`, a
//     // std::function<void()> that outlives the call, in place of its arithmetic.
//     static Op::Arguments arguments(Buffers&, OverlapCall, const std::function<void()>& tile)
//   };
//   void BM_Overlap(benchmark::State& state) { report_overlap<Traits>(state, "gather, then multiply"); }
//   BENCHMARK(BM_Overlap)->Apply(overlap_rows);
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/bench_row.h"
#include "executor/op_call.h"
#include "testing/thread_cluster.h"

namespace tilewire {

struct OverlapCall {
  bool is_fused = true;
  bool computes = true;
};

struct OverlapTimes {
  double communication_s = 0, compute_s = 0, fused_s = 0, unfused_s = 0;
  std::string error{};
};

inline constexpr double kOverlapGbps = 0.16;

// Tiles are paced on a clock, so that oversleeping does not add up.
class TilePace {
 public:
  explicit TilePace(double tile_s) : tile_(static_cast<int64_t>(tile_s * 1e9)) {}
  void sleep() {
    busy_until_ = std::max(busy_until_, Clock::now() - std::chrono::microseconds(200)) + tile_;
    std::this_thread::sleep_until(busy_until_);
  }
  double seconds_of(int64_t tiles) {
    const Clock::time_point begin = Clock::now();
    for (int64_t t = 0; t < tiles; ++t) sleep();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::chrono::nanoseconds tile_;
  Clock::time_point busy_until_{};
};

inline double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// On one rank; all ranks do the same.
template <class Traits>
OverlapTimes time_overlap(Session& session, double tile_s) {
  constexpr int kRepeats = 5;
  OpCalls<typename Traits::Op> op(session);
  typename Traits::Buffers buffers;
  TilePace pace(tile_s);
  const std::function<void()> tile = [&] { pace.sleep(); };
  const auto seconds = [&](OverlapCall call) { return op.run(Traits::arguments(buffers, call, tile)).seconds; };
  std::vector<double> communication, compute, fused, unfused;
  seconds({});
  for (int i = 0; i < kRepeats; ++i) {
    communication.push_back(seconds({.computes = false}));
    compute.push_back(pace.seconds_of(Traits::kTiles));
    fused.push_back(seconds({}));
    unfused.push_back(seconds({.is_fused = false}));
  }
  return {median_of(communication), median_of(compute), median_of(fused), median_of(unfused)};
}

template <class Traits>
OverlapTimes measure_overlap(double communication_per_compute) {
  Options options;
  options.arena_initial_bytes = 16 << 20;
  options.arena_reserve_bytes = 64 << 20;
  options.user_arena_reserve_bytes = 64 << 20;
  options.emulated_bandwidth_gbps = kOverlapGbps;
  options.emulated_latency_us = 20;
  options.workers = 1;
  const double bare_s = Traits::kNetworkBytes * 8 / (kOverlapGbps * 1e9);
  const double tile_s = bare_s / communication_per_compute / Traits::kTiles;
  OverlapTimes times;
  const auto outcomes = run_thread_cluster({2, 2}, options, [&](Session& session) {
    const OverlapTimes mine = time_overlap<Traits>(session, tile_s);
    if (session.rank() == Rank{0}) times = mine;
  });
  times.error = first_error(outcomes);
  return times;
}

// At the ends: within 10 % of the longer of communication and compute. In between: against the unfused call, and at
// equal shares 1.3 times as fast.
inline BenchComparison compare_overlap(int64_t quarters, const OverlapTimes& t, const char* unfused_name) {
  BenchComparison c = {.ours = t.fused_s * 1e3, .baseline = t.unfused_s * 1e3, .unit = "ms", .is_smaller_better = true};
  c.baseline_name = unfused_name;
  if (quarters == 1 || quarters == 16) {
    c.baseline = std::max(t.communication_s, t.compute_s) * 1e3;
    c.baseline_name = "longer of communication and compute alone";
    c.goal = "<= 1.1 x baseline";
    c.meets_goal = c.ours <= 1.1 * c.baseline;
  } else if (quarters == 4) {
    c.goal = "1.3 x as fast as baseline";
    c.meets_goal = c.ours * 1.3 <= c.baseline;
  }
  return c;
}

// Argument: communication / compute in quarters. `unfused_name`: what the unfused call does, as "gather, then
// multiply".
template <class Traits>
void report_overlap(benchmark::State& state, const char* unfused_name) {
  BenchRow row(state, 2);  // the ranks' threads sleep nearly all the time
  OverlapTimes t;
  for (auto _ : state) {
    t = measure_overlap<Traits>(static_cast<double>(state.range(0)) / 4);
    state.SetIterationTime(t.fused_s);
    if (!t.error.empty()) state.SkipWithError(t.error.c_str());
  }
  if (!t.error.empty()) return;
  state.counters["communication_ms"] = t.communication_s * 1e3;
  state.counters["compute_ms"] = t.compute_s * 1e3;
  state.counters["fused_ms"] = t.fused_s * 1e3;
  state.counters["unfused_ms"] = t.unfused_s * 1e3;
  row.report(compare_overlap(state.range(0), t, unfused_name));
}

inline void overlap_rows(benchmark::internal::Benchmark* bench) {
  bench->ArgName("quarters")->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);
  for (const int64_t quarters : {1, 2, 4, 8, 16}) bench->Arg(quarters);
}

}  // namespace tilewire
