#include <fmt/format.h>

#include "ops/attention/device_plan.h"
#include "planning/plan_json.h"

namespace tilewire::attention {

std::string to_json(const FusedPlan& plan) { return choice_to_json(kCallName, plan); }

FusedPlan FusedPlan::from_json(const std::string& json) { return choice_from_json<FusedPlan>(kCallName, json); }

std::string FusedPlan::text() const {
  return fmt::format("{}, warps beside the tiles push, {} clocks apart", choice.text(), pace_clocks);
}

}  // namespace tilewire::attention
