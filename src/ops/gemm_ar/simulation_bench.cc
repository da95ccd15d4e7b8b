// How long the simulator takes for large calls of GEMM+AllReduce.
#include <algorithm>

#include "ops/gemm_ar/simulation.h"
#include "testing/walk_bench.h"

namespace tilewire::gemm_ar {
namespace {

// M = N = K = 8192 bf16 over all ranks, 132 compute workers a rank, in two shots.
OpSimulation big_call(const benchmark::State& state) {
  const BigCluster cluster(state);
  OpSimulation simulation = cluster.simulation();
  const int64_t share = 8192 / cluster.ranks();
  const Problem problem{.m = 8192, .n = 8192, .k = share};
  PlanChoice choice;
  choice.chunk_rows = std::min<int64_t>(share, 128);
  choice.chunk_cols = 1024;
  choice.workers = 132;
  simulation.add_call<RankModel>(problem, {choice});
  return simulation;
}

void random_walk(benchmark::State& state) { bench_random_walk(state, big_call(state)); }
BENCHMARK(random_walk)->Apply(on_big_clusters);

void clocked_walk(benchmark::State& state) { bench_clocked_walk(state, big_call(state)); }
BENCHMARK(clocked_walk)->Apply(on_big_clusters);

}  // namespace
}  // namespace tilewire::gemm_ar
