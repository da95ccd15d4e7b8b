// The plan of the fused kernel as text, both ways.
#pragma once

#include <string>
#include <type_traits>

#include "ops/ag_gemm/device_launch.cuh"

namespace tilewire::ag_gemm {

// As that of PlanChoice, and the numbers that a kernel has besides.
template <class Fused, class Visit>
requires std::is_same_v<std::remove_const_t<Fused>, FusedPlan>
void for_each_field(Fused& plan, Visit&& visit) {
  for_each_field(plan.choice, visit);
  visit("push_ctas", plan.push_ctas, NumberRange{0, 1024});
  visit("pace_clocks", plan.pace_clocks, NumberRange{0, 1 << 20});
  visit("own_in_place", plan.own_in_place, NumberRange{0, 1});
}

std::string to_json(const FusedPlan& plan);
// Throws Error(invalid_argument) naming the field that is missing, unknown or out of range.
FusedPlan fused_plan_from_json(const std::string& json);
std::string text_of(const FusedPlan& plan);

}  // namespace tilewire::ag_gemm
