// A large call of AllGather+GEMM, for the bench of how long the simulator takes for it.
#pragma once

#include <algorithm>
#include <vector>

#include "ops/ag_gemm/model.h"
#include "testing/walk_bench.h"

namespace tilewire::ag_gemm {

// M = N = K = 8192 bf16 over all ranks, 132 compute workers a rank, tiles of 128 x 128.
inline OpSimulation big_call(const BigCluster& cluster) {
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

}  // namespace tilewire::ag_gemm
