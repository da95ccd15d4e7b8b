#include <fmt/format.h>

#include "ops/gemm_rs/device_plan.h"
#include "planning/plan_json.h"

namespace tilewire::gemm_rs {

std::string to_json(const FusedPlan& plan) { return choice_to_json(kCallName, plan); }

FusedPlan FusedPlan::from_json(const std::string& json) { return choice_from_json<FusedPlan>(kCallName, json); }

std::string FusedPlan::shared_text() const {
  return fmt::format("{}, bands of {}, own node {} rounds behind", choice.shared_text(), choice.band_blocks,
                     choice.own_behind);
}

CallParts FusedPlan::agreed() const {
  return joined(choice.agreed(), {{fmt::format("band_blocks = {}", choice.band_blocks), kPlanAdvice},
                                  {fmt::format("own_behind = {}", choice.own_behind), kPlanAdvice}});
}

std::string FusedPlan::text() const {
  return fmt::format("{}, bands of {}, own node {} rounds behind, tiles {}", choice.text(), choice.band_blocks,
                     choice.own_behind, name_of_form(*this));
}

}  // namespace tilewire::gemm_rs
