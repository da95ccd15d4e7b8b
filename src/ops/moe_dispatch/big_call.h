// A large call of MoE dispatch, for the bench of how long the simulator takes for it.
#pragma once

#include "ops/moe_dispatch/model.h"
#include "testing/walk_bench.h"

namespace tilewire::moe_dispatch {

// 1024 tokens of each rank, 8 of 256 experts each, H 7168, I 2048, 132 compute workers a rank.
inline OpSimulation big_call(const BigCluster& cluster) {
  OpSimulation simulation = cluster.simulation();
  Problem problem{.rank_of_expert = {}, .h = 7168, .top_k = 8, .most_rows = 8192};
  for (int32_t e = 0; e < 256; ++e) problem.rank_of_expert.push_back(e * cluster.ranks() / 256);
  problem.most_tokens = problem.planned_tokens = 1024;
  problem.cols = 2048;
  const PlanChoice choice{
      .block_tokens = 256, .window = 2, .chunk_tokens = cluster.chunk_rows, .workers = 132, .cursors = {}};
  simulation.add_call<RankModel>(problem, {choice});
  return simulation;
}

}  // namespace tilewire::moe_dispatch
