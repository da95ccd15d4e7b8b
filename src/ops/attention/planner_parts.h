// What the planners of CPU ranks and of GPU ranks have in common.
#pragma once

#include <cstdint>
#include <string>

#include "ops/attention/plan.h"
#include "planning/plan_parts.h"

namespace tilewire::attention {

// What a planner refers to. Whatever is wrong with all of the problem is found here.
struct PricedProblem {
  Problem priced;
  explicit PricedProblem(const Problem& problem) : priced((problem.validate(), problem.priced())) {}
  PricedProblem(const PricedProblem&) = delete;
  PricedProblem& operator=(const PricedProblem&) = delete;
};

// "" or why it cannot be, memory aside.
std::string reason_against_choice_of(const Problem& problem, const PlanChoice& choice, const PlanContext& context);

// The largest window that fits, 0 where every unit can have a slot; the smallest one where none fits.
int64_t window_that_fits(const Problem& problem, PlanChoice choice, const PlanContext& context);

// How many pairs are computed together, at most: by agreed values alone, for all workers of a rank together.
int32_t group_of(const Problem& problem, const PlanChoice& choice);

// Whether every unit has a slot, which an unfused plan needs, and there is something to wait for.
bool can_gather_first(const Problem& problem, const PlanChoice& choice, const PlanContext& context);

// Seconds of a call by the simulator. It walks so many items a rank, or tiles that are larger in proportion: planning is to
// take less than the call.
double walk_s(const Problem& problem, PlanChoice choice, const PlanContext& context, int64_t most_items);

}  // namespace tilewire::attention
