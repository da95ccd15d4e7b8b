// The part of a plan that is equal on all ranks, for the planners of CPU ranks and of GPU ranks: what is tried, and why it
// cannot be. By agreed values alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/moe_dispatch/plan.h"

namespace tilewire::moe_dispatch {

inline constexpr int64_t kPricedCols = 2048;  // columns of a weight, where each rank has its own
inline constexpr const char* kPricedAs = "with I = 2048";

// Throws Error(invalid_argument) for an expert that is on no rank.
void check_placement(const Problem& problem, const PlanContext& context);

// "" or why it cannot be, memory aside.
std::string reason_against_shared(const Problem& problem, const PlanChoice& choice, const PlanContext& context);

// All tokens in one round, in two, in four, ...: the first few of them that there is memory for, as each takes long to
// price; the smaller the rounds the earlier the first rows come, the larger the fewer times a weight is read.
std::vector<PlanChoice> shared_choices(const Problem& problem, const PlanContext& context);

}  // namespace tilewire::moe_dispatch
