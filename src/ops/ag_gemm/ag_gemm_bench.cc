// How well communication hides under computation: 2 nodes x 2 CPU ranks over the emulated network, at several ratios of
// communication to compute. A tile sleeps instead of multiplying, since two cores cannot compute for four ranks at
// once; the data, the roles, the proxies and the network are real. All four times of a row are medians of the same run.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "base/bench_row.h"
#include "executor/thread_cluster.h"
#include "ops/ag_gemm/ag_gemm.h"

namespace tilewire::ag_gemm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kRows = 512, kDepth = 2048, kCols = 512;  // a shard of 2 MiB
constexpr double kNetworkGbps = 0.16;                       // 2 MiB in about 105 ms
constexpr int kRepeats = 5;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

PlanChoice plan(bool is_fused) {
  return {.chunk_rows = 32,
          .is_fused = is_fused,
          .tile_rows = 32,
          .tile_cols = 256,
          .raster_rows = 1,
          .workers = 1,
          .cursors = {}};
}

// The memory of one rank.
struct Buffers {
  std::vector<uint16_t> a = std::vector<uint16_t>(kRows * kDepth, 0x3f80);
  std::vector<uint16_t> b = std::vector<uint16_t>(kDepth * kCols, 0x3f80);
  std::vector<uint16_t> out = std::vector<uint16_t>(4 * kRows * kCols);
};

double run_once(Operation& op, Buffers& m, bool is_fused, int64_t cols, const TileStandIn& stand_in) {
  Arguments args;
  args.a = {m.a.data(), kRows, kDepth, kDepth, 1, DataType::bf16};
  args.b = {{m.b.data(), kDepth, cols, kCols, 1, DataType::bf16}};
  args.plan_json = to_json(plan(is_fused));
  args.stand_in = stand_in;
  args.make_results = [&](const Problem& p) {
    return Arguments::Results{{{m.out.data(), p.total_rows(), cols, std::max<int64_t>(cols, 1), 1, DataType::bf16}},
                              {}};
  };
  return op.run(args).seconds;
}

struct Times {
  double communication = 0, compute = 0, fused = 0, unfused = 0;
  std::string error{};
};

Times measure(double communication_per_compute) {
  Options options;
  options.arena_initial_bytes = 16 << 20;
  options.arena_reserve_bytes = 64 << 20;
  options.user_arena_reserve_bytes = 64 << 20;
  options.emulated_bandwidth_gbps = kNetworkGbps;
  options.emulated_latency_us = 20;
  options.workers = 1;
  constexpr int64_t kTiles = 4 * kRows / 32 * (kCols / 256);
  const double bare_s = kRows * kDepth * 2 * 8 / (kNetworkGbps * 1e9);
  const double tile_s = bare_s / communication_per_compute / kTiles;
  Times times;
  const auto outcomes = run_thread_cluster({2, 2}, options, [&](Session& session) {
    Operation op(session);
    Buffers m;
    // Tiles are paced on a clock, so that oversleeping does not add up.
    Clock::time_point busy_until{};
    const TileStandIn sleep = [&](const TileWork&) {
      busy_until = std::max(busy_until, Clock::now() - std::chrono::microseconds(200)) +
                   std::chrono::nanoseconds(static_cast<int64_t>(tile_s * 1e9));
      std::this_thread::sleep_until(busy_until);
    };
    const auto compute_alone = [&] {
      const auto begin = Clock::now();
      for (int64_t t = 0; t < kTiles; ++t) sleep({});
      return seconds_since(begin);
    };
    std::vector<double> communication, compute, fused, unfused;
    run_once(op, m, true, kCols, sleep);
    for (int i = 0; i < kRepeats; ++i) {
      communication.push_back(run_once(op, m, true, 0, sleep));
      compute.push_back(compute_alone());
      fused.push_back(run_once(op, m, true, kCols, sleep));
      unfused.push_back(run_once(op, m, false, kCols, sleep));
    }
    if (session.rank() == Rank{0}) times = {median(communication), median(compute), median(fused), median(unfused), {}};
  });
  times.error = first_error(outcomes);
  return times;
}

// At the ends: within 10 % of the longer of communication and compute. In between: against gathering first, and at
// equal shares 1.3 times as fast.
void report_overlap(BenchRow& row, int64_t quarters, const Times& t) {
  const bool is_end = quarters == 1 || quarters == 16;
  BenchComparison c = {.ours = t.fused * 1e3, .baseline = t.unfused * 1e3, .unit = "ms", .is_smaller_better = true};
  c.baseline_name = "gather, then multiply";
  if (is_end) {
    c.baseline = std::max(t.communication, t.compute) * 1e3;
    c.baseline_name = "longer of communication and compute alone";
    c.goal = "<= 1.1 x baseline";
    c.meets_goal = c.ours <= 1.1 * c.baseline;
  } else if (quarters == 4) {
    c.goal = "1.3 x as fast as baseline";
    c.meets_goal = c.ours * 1.3 <= c.baseline;
  }
  row.report(c);
}

// Argument: communication / compute in quarters.
void BM_Overlap(benchmark::State& state) {
  const double ratio = static_cast<double>(state.range(0)) / 4;
  BenchRow row(state, 2);  // the ranks' threads sleep nearly all the time
  Times t;
  for (auto _ : state) {
    t = measure(ratio);
    state.SetIterationTime(t.fused);
    if (!t.error.empty()) state.SkipWithError(t.error.c_str());
  }
  if (!t.error.empty()) return;
  state.counters["communication_ms"] = t.communication * 1e3;
  state.counters["compute_ms"] = t.compute * 1e3;
  state.counters["fused_ms"] = t.fused * 1e3;
  state.counters["unfused_ms"] = t.unfused * 1e3;
  report_overlap(row, state.range(0), t);
}
BENCHMARK(BM_Overlap)
    ->ArgName("quarters")
    ->Arg(1)
    ->Arg(2)
    ->Arg(4)
    ->Arg(8)
    ->Arg(16)
    ->Iterations(1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tilewire::ag_gemm
