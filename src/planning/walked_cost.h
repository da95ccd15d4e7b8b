// For planners of ops whose calls cost what the simulator says, which walks the roles of all ranks on a clock.
#pragma once

#include <algorithm>

#include "planning/op_simulation.h"
#include "planning/plan_parts.h"

namespace tilewire {

// Seconds of a call by a choice that check_choice() has passed.
template <SimulatedModel Model>
double walked_s(const typename Model::Problem& problem, const typename Model::Choice& choice,
                const PlanContext& context) {
  const Topology& t = context.topology;
  OpSimulation simulation(TopologyTables::from_nodes({t.node_of_rank, t.node_of_rank + t.ranks}), context.arena);
  simulation.add_checked_call<Model>(problem, {choice}, context.machine);
  return run_timed(simulation.program(), {.machine = context.machine}).seconds;
}

// What it takes in all, beside its products alone and its communication alone.
template <SimulatedModel Model>
Cost walked_cost(const typename Model::Problem& problem, const typename Model::Choice& choice,
                 const PlanContext& context, double compute_s, double bare_s) {
  const double total_s = std::max(compute_s, walked_s<Model>(problem, choice, context));
  return {.compute_s = compute_s, .communication_s = std::min(bare_s, total_s), .total_s = total_s};
}

}  // namespace tilewire
