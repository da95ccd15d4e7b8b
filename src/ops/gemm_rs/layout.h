// How a problem is cut by a plan, and where its buffers lie: the same on all ranks.
#pragma once

#include <cstdint>

#include "ops/gemm_rs/plan.h"

namespace tilewire::gemm_rs {

// No chunk is larger than what there is to cut.
ReductionCut cut_of(const Problem& problem, const PlanChoice& choice);
Buffers buffers_of(const Problem& problem, const PlanChoice& choice, const PlanContext& context);
// Of each half of the arena. Throws Error(resource) when that does not fit 64 bits.
int64_t half_bytes(const Problem& problem, const PlanChoice& choice, const PlanContext& context);
// "" or why chunks of that size cannot be: too many for the flag area, or too large for a command.
std::string reason_against_chunks(const Problem& problem, const PlanChoice& choice, const PlanContext& context);

}  // namespace tilewire::gemm_rs
