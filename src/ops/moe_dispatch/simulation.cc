#include "ops/moe_dispatch/simulation.h"

namespace tilewire::moe_dispatch {

TimedReport simulate(const Problem& problem, const PlanChoice& choice, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace) {
  return simulate_op<RankModel>(problem, choice, topology, context, keeps_trace);
}

}  // namespace tilewire::moe_dispatch
