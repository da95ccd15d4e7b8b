// Calls of GEMM+AllReduce on every rank, in the simulator.
#pragma once

#include "ops/gemm_ar/device_plan.h"
#include "ops/gemm_ar/model.h"
#include "planning/op_simulation.h"

namespace tilewire::gemm_ar {

// Predicted by walking the roles of all ranks on a clock. Ranks other than context.me are taken to have its K.
TimedReport simulate(const Problem& problem, const PlanChoice& choice, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace);
// The same for GPU ranks, with clusters for workers.
TimedReport simulate(const Problem& problem, const FusedPlan& plan, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace);

}  // namespace tilewire::gemm_ar
