#include <fmt/format.h>

#include "ops/ag_gemm/device_plan.h"
#include "planning/plan_json.h"

namespace tilewire::ag_gemm {

std::string to_json(const FusedPlan& plan) { return choice_to_json(kCallName, plan); }

FusedPlan FusedPlan::from_json(const std::string& json) { return choice_from_json<FusedPlan>(kCallName, json); }

std::string FusedPlan::text() const {
  const std::string movers = push_ctas > 0 ? fmt::format("{} SMs push", push_ctas)
                                           : fmt::format("warps beside the tiles push, {} clocks apart", pace_clocks);
  return fmt::format("{}, {}, own rows {}", choice.text(), movers,
                     own_in_place ? "read where they are" : "copied first");
}

}  // namespace tilewire::ag_gemm
