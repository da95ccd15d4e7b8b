// How long the simulator takes for large calls of AllGather+GEMM.
#include <algorithm>
#include <vector>

#include "ops/ag_gemm/simulation.h"
#include "testing/walk_bench.h"

namespace tilewire::ag_gemm {
namespace {

// M = N = K = 8192 bf16 over all ranks, 132 compute workers a rank, tiles of 128 x 128.
OpSimulation big_call(const benchmark::State& state) {
  const BigCluster cluster(state);
  OpSimulation simulation = cluster.simulation();
  const int64_t share = 8192 / cluster.ranks();
  const Problem problem{.rows = std::vector<int64_t>(static_cast<size_t>(cluster.ranks()), share),
                        .k = 8192,
                        .cols = {std::max<int64_t>(128, share)}};
  PlanChoice choice;
  choice.chunk_rows = cluster.chunk_rows;
  choice.tile_cols = 128;
  choice.workers = 132;
  simulation.add_call<RankModel>(problem, {choice});
  return simulation;
}

void random_walk(benchmark::State& state) { bench_random_walk(state, big_call(state)); }
BENCHMARK(random_walk)->Apply(on_big_clusters);

void clocked_walk(benchmark::State& state) { bench_clocked_walk(state, big_call(state)); }
BENCHMARK(clocked_walk)->Apply(on_big_clusters);

}  // namespace
}  // namespace tilewire::ag_gemm
