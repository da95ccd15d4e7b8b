// How a problem is cut by a plan, and where its buffers lie: the same on all ranks.
#pragma once

#include <cstdint>

#include "ops/gemm_ar/plan.h"
#include "reduction/reduction_layout.h"

namespace tilewire::gemm_ar {

// No chunk is larger than what there is to cut.
ReductionCut cut_of(const Problem& problem, const PlanChoice& choice);
// What the form needs of memory and words.
ReductionNeeds needs_of(const ReductionCut& cut, const PlanChoice& choice, const PlanContext& context);

inline constexpr const char* kOneShotUnderWindow =
    "is_one_shot = true and window > 0: one shot has a slot for every chunk";
// Of what is sent between nodes, the dtype with the most bytes.
DataType largest_sent(const Problem& problem);

struct CallLayout : ReductionLayout {
  int64_t results_begin = 0;   // from the start of each half of the arena
  int64_t finished_begin = 0;  // likewise
  int64_t result_slot_bytes = 0;
  int64_t result_slots = 0;  // of an owner under a window; 0: each chunk has one
};
// Throws Error(resource) when it does not fit 64 bits.
CallLayout layout_of(const Problem& problem, const PlanChoice& choice, const PlanContext& context);

}  // namespace tilewire::gemm_ar
