#include "planning/plan_json.h"

#include <fmt/format.h>

#include "ops/gemm_ar/plan.h"
#include "reduction/reduction_plan_text.h"

namespace tilewire::gemm_ar {

std::string to_json(const PlanChoice& choice) { return choice_to_json(kCallName, choice); }
PlanChoice PlanChoice::from_json(const std::string& json) { return choice_from_json<PlanChoice>(kCallName, json); }

std::string PlanChoice::shared_text() const {
  return (is_one_shot ? "one shot, " : "two shots, ") + chunks_text(*this);
}

CallParts PlanChoice::agreed() const {
  return joined({{fmt::format("is_one_shot = {}", is_one_shot), kPlanAdvice}}, agreed_chunks(*this));
}

std::string PlanChoice::text() const {
  const std::string text = own_text(*this, "multiply, then reduce", shared_text());
  return is_one_shot ? text : fmt::format("{}, gathers {} rounds behind", text, gather_behind);
}

}  // namespace tilewire::gemm_ar
