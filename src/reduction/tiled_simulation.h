// The simulated time of a call of a fused kernel that sums products over ranks, by the planner that prices it.
#pragma once

#include "planning/plan_parts.h"
#include "schedule/machine.h"

namespace tilewire {

// `context` for a simulation of the plan's choice: the clusters' rate is the one at which a chunk takes what the planner
// says. Planner: see tiled_planner.h; cut_of() is found beside the problem.
template <class Planner, class Plan>
PlanContext as_simulated(const typename Plan::Problem& problem, const Plan& plan, PlanContext context) {
  const auto cut = cut_of(problem, plan.choice);
  const double chunk_s = Planner(problem, context).chunk_s(plan, cut, problem.k);
  if (problem.k > 0)
    context.machine.worker_flops = gemm_tile_flops(cut.chunk_rows, cut.chunk_cols, problem.k) / chunk_s;
  return context;
}

}  // namespace tilewire
