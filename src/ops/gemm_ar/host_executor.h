// GEMM+AllReduce on a CPU rank: each role is a thread over host memory, the arithmetic is the executor's.
#pragma once

#include "executor/call.h"
#include "ops/gemm_ar/schedule.h"
#include "reduction/reduction_operands.h"

namespace tilewire::gemm_ar {

using HostOperands = ReductionOperands;  // residual and out: [M, N]

// The roles of one call over `schedule`; all arguments must live until the call is over.
Call::Program host_program(const Schedule& schedule, Cursors cursors, const HostOperands& operands,
                           const ChunkStandIn* stand_in = nullptr);

}  // namespace tilewire::gemm_ar
