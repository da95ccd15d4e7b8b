#include "planning/plan_json.h"

#include <fmt/format.h>

#include "ops/attention/plan.h"

namespace tilewire::attention {

std::string to_json(const PlanChoice& choice) { return choice_to_json(kCallName, choice); }
PlanChoice PlanChoice::from_json(const std::string& json) { return choice_from_json<PlanChoice>(kCallName, json); }

std::string PlanChoice::shared_text() const {
  const char* unit = is_step_major ? "source" : "head";
  const std::string slots = window == 0 ? fmt::format("every {} has a slot", unit)
                                        : fmt::format("{} slot{} of a {}", window, window == 1 ? "" : "s", unit);
  return fmt::format("{}, chunks of {} rows, {}", is_step_major ? "source after source" : "head after head", chunk_rows,
                     slots);
}

CallParts PlanChoice::agreed() const {
  return {{fmt::format("is_step_major = {}", is_step_major), kPlanAdvice},
          {fmt::format("chunk_rows = {}", chunk_rows), kPlanAdvice},
          {fmt::format("window = {}", window), kPlanAdvice}};
}

std::string PlanChoice::text() const {
  return fmt::format(
      "{}, {}, tiles of {} rows, {} head{} at a time, {} worker{}, waits {} pieces ahead, publishes {} pieces behind",
      is_fused ? "fused" : "gather, then attend", shared_text(), tile_rows, group_pairs, group_pairs == 1 ? "" : "s",
      workers, workers == 1 ? "" : "s", cursors.load_ahead, cursors.publish_behind);
}

}  // namespace tilewire::attention
