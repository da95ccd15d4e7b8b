#include "planning/plan_json.h"

#include <fmt/format.h>

#include "ops/moe_dispatch/device_plan.h"

namespace tilewire::moe_dispatch {

std::string to_json(const PlanChoice& choice) { return choice_to_json(kCallName, choice); }
PlanChoice PlanChoice::from_json(const std::string& json) { return choice_from_json<PlanChoice>(kCallName, json); }

std::string to_json(const FusedPlan& plan) { return choice_to_json(kCallName, plan); }
FusedPlan FusedPlan::from_json(const std::string& json) { return choice_from_json<FusedPlan>(kCallName, json); }

std::string PlanChoice::shared_text() const {
  return fmt::format("rounds of {} tokens a rank, room for {} round{}, chunks of {} tokens, {} piece{} of experts, {}",
                     block_tokens, window, window == 1 ? "" : "s", chunk_tokens, pieces, pieces == 1 ? "" : "s",
                     local_first ? "rows of the own node first" : "rows of all nodes together");
}

CallParts PlanChoice::agreed() const {
  return {{fmt::format("block_tokens = {}", block_tokens), kPlanAdvice},
          {fmt::format("window = {}", window), kPlanAdvice},
          {fmt::format("chunk_tokens = {}", chunk_tokens), kPlanAdvice},
          {fmt::format("pieces = {}", pieces), kPlanAdvice},
          {fmt::format("local_first = {}", local_first), kPlanAdvice}};
}

std::string PlanChoice::text() const {
  return fmt::format("{}, {}, tiles of {} x {}, {} row block{} at a time, {} worker{}, publishes {} pieces behind",
                     is_fused ? "fused" : "dispatch, then multiply", shared_text(), tile_rows, tile_cols, raster_rows,
                     raster_rows == 1 ? "" : "s", workers, workers == 1 ? "" : "s", cursors.publish_behind);
}

}  // namespace tilewire::moe_dispatch
