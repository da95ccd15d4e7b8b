// Calls of MoE dispatch on every rank, in the simulator.
#pragma once

#include "ops/moe_dispatch/model.h"
#include "planning/op_simulation.h"

namespace tilewire::moe_dispatch {

// Predicted by walking the roles of all ranks on a clock. Ranks other than context.me are taken to have its tokens and
// its weights, and the routing is the one of sample_routing.h.
TimedReport simulate(const Problem& problem, const PlanChoice& choice, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace);

}  // namespace tilewire::moe_dispatch
