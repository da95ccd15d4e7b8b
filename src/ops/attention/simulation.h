// Calls of ring attention on every rank, in the simulator.
#pragma once

#include "ops/attention/model.h"
#include "planning/op_simulation.h"

namespace tilewire::attention {

// Predicted by walking the roles of all ranks on a clock. All ranks are taken to have the own part of its plan.
TimedReport simulate(const Problem& problem, const PlanChoice& choice, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace);

}  // namespace tilewire::attention
