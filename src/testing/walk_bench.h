// For benches of how long the simulator takes for a large call of an op: every CTA of every rank, all checks on in the
// random walk. There is no bare mechanism beside it: what it is compared with is its goal. An op's bench writes its
// large call.
#pragma once

#include <benchmark/benchmark.h>
#include <malloc.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/bench_row.h"
#include "planning/op_simulation.h"
#include "schedule/simulator/random_run.h"
#include "schedule/simulator/timed_run.h"

namespace tilewire {

// The arguments of a row, and the cluster that they stand for.
struct BigCluster {
  int32_t nodes = 0;
  int32_t ranks_per_node = 0;
  int64_t chunk_rows = 0;

  BigCluster(int32_t nodes_of, int32_t ranks_of_node, int64_t rows)
      : nodes(nodes_of), ranks_per_node(ranks_of_node), chunk_rows(rows) {}
  explicit BigCluster(const benchmark::State& state)
      : BigCluster(static_cast<int32_t>(state.range(0)), static_cast<int32_t>(state.range(1)), state.range(2)) {}
  int32_t ranks() const { return nodes * ranks_per_node; }
  // Seconds a walk may take: seconds on two nodes, a minute on eight.
  double goal_s() const { return nodes > 2 ? 60 : 10; }
  OpSimulation simulation() const {
    const ArenaLayout arena = {.flags = {.ranks = ranks(), .max_chunks = 64},
                               .half_stride_bytes = int64_t{1} << 29,
                               .user_stride_bytes = 4096};
    return {TopologyTables::from_layout(std::vector<int32_t>(static_cast<size_t>(nodes), ranks_per_node)), arena};
  }
};

// Each of a bench's rows: BENCHMARK(...)->Apply(on_big_clusters).
inline void on_big_clusters(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"nodes", "ranks", "chunk_rows"})->Args({2, 8, 64})->Args({8, 8, 16})->Unit(benchmark::kMillisecond);
}

// `walk(seed)` gives the report of one walk.
template <class Walk>
void bench_walk(benchmark::State& state, const Walk& walk) {
  BenchRow row(state, 1);
  uint64_t seed = 1;
  int64_t pieces = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (auto _ : state) {
    const SimReport r = walk(seed++);
    if (!r.ok()) state.SkipWithError(r.text().c_str());
    pieces += r.pieces_of_work;
  }
  const double all_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double ours = all_s / static_cast<double>(state.iterations()), goal = BigCluster(state).goal_s();
  row.report({.ours = ours,
              .baseline = goal,
              .baseline_name = "goal",
              .unit = "s",
              .is_smaller_better = true,
              .goal = BigCluster(state).nodes > 2 ? "<= 60 s" : "<= 10 s",
              .meets_goal = ours <= goal});
  state.counters["pieces_of_work"] = benchmark::Counter(static_cast<double>(pieces), benchmark::Counter::kIsRate);
}

// Memory that `work` needs at most beyond what the process holds before, in bytes, by the kernel's count of resident
// pages; -1 where it does not say.
template <class Work>
int64_t peak_bytes(const Work& work) {
  const auto kib = [](const std::string& key) -> int64_t {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind(key, 0) == 0) return std::stoll(line.substr(key.size()));
    }
    return -1;
  };
  malloc_trim(0);
  if (!(std::ofstream("/proc/self/clear_refs") << 5).flush()) return -1;  // the peak begins again at what is held now
  const int64_t before = kib("VmRSS:");
  work();
  return (kib("VmHWM:") - before) * 1024;
}

// Memory of a walk for a piece of work, on eight nodes against two: it grows with the pieces and no faster.
template <class CallOf>
void bench_walk_memory(benchmark::State& state, const CallOf& call_of) {
  BenchRow row(state, 0);  // what it takes depends on nobody else
  const auto bytes_per_piece = [&](const BigCluster& cluster) {
    int64_t pieces = 0;
    const int64_t bytes = peak_bytes([&] { pieces = run_random(call_of(cluster).program(), {}, 1).pieces_of_work; });
    if (bytes < 0) state.SkipWithError("this machine does not count what a process holds at most");
    return static_cast<double>(bytes) / static_cast<double>(pieces);
  };
  double few = 0, many = 0;
  for (auto _ : state) {
    few = bytes_per_piece({2, 8, 64});
    many = bytes_per_piece({8, 8, 16});
  }
  row.report({.ours = many,
              .baseline = few,
              .baseline_name = "a piece of work on two nodes",
              .unit = "bytes",
              .is_smaller_better = true,
              .goal = "<= 1.25 x",
              .meets_goal = many <= 1.25 * few});
}

inline void bench_random_walk(benchmark::State& state, const OpSimulation& call) {
  bench_walk(state, [&](uint64_t seed) { return run_random(call.program(), {}, seed); });
}

inline void bench_clocked_walk(benchmark::State& state, const OpSimulation& call) {
  double seconds = 0;
  bench_walk(state, [&](uint64_t) {
    TimedReport r = run_timed(call.program(), {});
    seconds = r.seconds;
    return std::move(r.rules);
  });
  state.counters["predicted_s"] = seconds;
}

}  // namespace tilewire
