// How long the simulator takes for large calls of GEMM+ReduceScatter.
#include <algorithm>
#include <vector>

#include "ops/gemm_rs/simulation.h"
#include "testing/walk_bench.h"

namespace tilewire::gemm_rs {
namespace {

// M = N = K = 8192 bf16 over all ranks, 132 compute workers a rank.
OpSimulation big_call(const benchmark::State& state) {
  const BigCluster cluster(state);
  OpSimulation simulation = cluster.simulation();
  const int64_t share = 8192 / cluster.ranks();
  const Problem problem{
      .rows = std::vector<int64_t>(static_cast<size_t>(cluster.ranks()), share), .n = 8192, .k = share};
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
}  // namespace tilewire::gemm_rs
