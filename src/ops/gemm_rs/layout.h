// How a problem is cut by a plan, and where its buffers lie: the same on all ranks.
#pragma once

#include <cstdint>

#include "ops/gemm_rs/plan.h"
#include "reduction/reduction_layout.h"

namespace tilewire::gemm_rs {

// No chunk is larger than what there is to cut.
ReductionCut cut_of(const Problem& problem, const PlanChoice& choice);
// Throws Error(resource) when it does not fit 64 bits.
ReductionLayout layout_of(const Problem& problem, const PlanChoice& choice, const PlanContext& context);

}  // namespace tilewire::gemm_rs
