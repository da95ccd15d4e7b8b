// A large call of GEMM+AllReduce, for the bench of how long the simulator takes for it.
#pragma once

#include <algorithm>

#include "ops/gemm_ar/model.h"
#include "testing/walk_bench.h"

namespace tilewire::gemm_ar {

// M = N = K = 8192 bf16 over all ranks, 132 compute workers a rank, in two shots.
inline OpSimulation big_call(const BigCluster& cluster) {
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

}  // namespace tilewire::gemm_ar
