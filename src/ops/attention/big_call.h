// A large call of ring attention, for the bench of how long the simulator takes for it.
#pragma once

#include <vector>

#include "ops/attention/model.h"
#include "testing/walk_bench.h"

namespace tilewire::attention {

// 32768 positions over all ranks, 32 heads on 8 of k and v, 132 compute workers a rank.
inline OpSimulation big_call(const BigCluster& cluster) {
  OpSimulation simulation = cluster.simulation();
  const std::vector<int64_t> rows(static_cast<size_t>(cluster.ranks()), 32768 / cluster.ranks());
  const Problem problem{.rows = rows, .kv_rows = rows, .batch = 1, .q_heads = 32, .kv_heads = 8, .head_dim = 128};
  PlanChoice choice;
  choice.workers = 132;
  simulation.add_call<RankModel>(problem, {choice});
  return simulation;
}

}  // namespace tilewire::attention
