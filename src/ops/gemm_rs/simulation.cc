#include "ops/gemm_rs/simulation.h"

#include <vector>

namespace tilewire::gemm_rs {

TimedReport simulate(const Problem& problem, const PlanChoice& choice, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace) {
  return simulate_op<RankModel>(problem, choice, topology, context, keeps_trace);
}

double walked_s(const Problem& problem, const PlanChoice& choice, const PlanContext& context) {
  const Topology& t = context.topology;
  OpSimulation simulation(TopologyTables::from_nodes({t.node_of_rank, t.node_of_rank + t.ranks}), context.arena);
  simulation.add_checked_call<RankModel>(problem, {choice}, context.machine);
  return run_timed(simulation.program(), {.machine = context.machine}).seconds;
}

}  // namespace tilewire::gemm_rs
