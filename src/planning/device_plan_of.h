// The Plan of a device op (executor/device_call.h) whose kernel has plans of a type of its own, with to_json(). The op's
// header need not know that type.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/call_text.h"
#include "planning/plan_parts.h"

namespace tilewire {

template <class FusedPlan>
struct DevicePlanOf {
  std::shared_ptr<const FusedPlan> fused;
  std::string json;
  std::string explanation;  // for people
  int64_t half_bytes = 0;
  double predicted_s = 0;
};
template <class FusedPlan>
DevicePlanOf<FusedPlan> device_plan_of(const PlanOf<FusedPlan>& plan) {
  return {.fused = std::make_shared<const FusedPlan>(plan.choice),
          .json = to_json(plan.choice),
          .explanation = plan.explain(),
          .half_bytes = plan.half_bytes,
          .predicted_s = plan.predicted_s};
}

// What ranks with GPUs agree on; ranks of the other kind say other things.
inline CallParts agreed_on_gpus(CallParts problem, const CallParts& plan) {
  return joined(joined(std::move(problem), plan), {{"on GPUs"}});
}

}  // namespace tilewire
