// How long the simulator takes for large calls of AllGather+GEMM: every CTA of every rank, all checks on in the random
// walk. There is no bare mechanism beside it: what it is compared with is its goal.
#include <benchmark/benchmark.h>

#include <chrono>

#include "base/bench_row.h"
#include "ops/ag_gemm/simulation.h"
#include "schedule/simulator/random_run.h"
#include "schedule/simulator/timed_run.h"

namespace tilewire::ag_gemm {
namespace {

// M = N = K = 8192 bf16 over all ranks, 132 compute workers a rank, tiles of 128 x 128.
Simulation big_call(const benchmark::State& state) {
  const auto nodes = static_cast<size_t>(state.range(0));
  const int32_t ranks_per_node = static_cast<int32_t>(state.range(1));
  TopologyTables topology = TopologyTables::from_layout(std::vector<int32_t>(nodes, ranks_per_node));
  const int32_t ranks = topology.view().ranks;
  const ArenaLayout arena = {
      .flags = {.ranks = ranks, .max_chunks = 64}, .half_stride_bytes = int64_t{1} << 28, .user_stride_bytes = 4096};
  Simulation simulation(std::move(topology), arena);
  const Problem problem{.rows = std::vector<int64_t>(static_cast<size_t>(ranks), 8192 / ranks),
                        .k = 8192,
                        .cols = {std::max(128, 8192 / ranks)}};
  PlanChoice choice;
  choice.chunk_rows = state.range(2);
  choice.tile_cols = 128;
  choice.workers = 132;
  simulation.add_call(problem, {choice});
  return simulation;
}

// Seconds a walk, against what is asked for on 2 nodes x 8 (seconds) and on 8 x 8 (a minute or so).
void report_seconds(BenchRow& row, benchmark::State& state, double seconds) {
  const double ours = seconds / static_cast<double>(state.iterations());
  const double goal = state.range(0) > 2 ? 60 : 10;
  row.report({.ours = ours,
              .baseline = goal,
              .baseline_name = "goal",
              .unit = "s",
              .is_smaller_better = true,
              .goal = state.range(0) > 2 ? "<= 60 s" : "<= 10 s",
              .meets_goal = ours <= goal});
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Arguments: nodes, ranks of a node, rows of a chunk.
void random_walk(benchmark::State& state) {
  const Simulation call = big_call(state);
  BenchRow row(state, 1);
  uint64_t seed = 1;
  int64_t pieces = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (auto _ : state) {
    const SimReport r = run_random(call.program(), {}, seed++);
    if (!r.ok()) state.SkipWithError(r.text().c_str());
    pieces += r.pieces_of_work;
  }
  report_seconds(row, state, seconds_since(begin));
  state.counters["pieces_of_work"] = benchmark::Counter(static_cast<double>(pieces), benchmark::Counter::kIsRate);
}
BENCHMARK(random_walk)
    ->ArgNames({"nodes", "ranks", "chunk_rows"})
    ->Args({2, 8, 64})
    ->Args({8, 8, 16})
    ->Unit(benchmark::kMillisecond);

void clocked_walk(benchmark::State& state) {
  const Simulation call = big_call(state);
  BenchRow row(state, 1);
  int64_t pieces = 0;
  double seconds = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (auto _ : state) {
    const TimedReport r = run_timed(call.program(), {});
    if (!r.rules.ok()) state.SkipWithError(r.rules.text().c_str());
    pieces += r.rules.pieces_of_work;
    seconds = r.seconds;
  }
  report_seconds(row, state, seconds_since(begin));
  state.counters["pieces_of_work"] = benchmark::Counter(static_cast<double>(pieces), benchmark::Counter::kIsRate);
  state.counters["predicted_s"] = seconds;
}
BENCHMARK(clocked_walk)
    ->ArgNames({"nodes", "ranks", "chunk_rows"})
    ->Args({2, 8, 64})
    ->Args({8, 8, 16})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tilewire::ag_gemm
