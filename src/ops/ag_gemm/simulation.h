// Calls of AllGather+GEMM on every rank, in the simulator.
#pragma once

#include "ops/ag_gemm/device_plan.h"
#include "ops/ag_gemm/model.h"
#include "planning/op_simulation.h"

namespace tilewire::ag_gemm {

// Predicted by walking the roles of all ranks on a clock. Ranks other than context.me are taken to have its weights.
TimedReport simulate(const Problem& problem, const PlanChoice& choice, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace);
// The same for GPU ranks, with clusters for workers.
TimedReport simulate(const Problem& problem, const FusedPlan& plan, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace);

}  // namespace tilewire::ag_gemm
