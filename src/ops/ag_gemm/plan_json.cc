#include "planning/plan_json.h"

#include <fmt/format.h>

#include "ops/ag_gemm/plan.h"

namespace tilewire::ag_gemm {

std::string to_json(const PlanChoice& choice) { return choice_to_json(kCallName, choice); }
PlanChoice PlanChoice::from_json(const std::string& json) { return choice_from_json<PlanChoice>(kCallName, json); }

std::string PlanChoice::shared_text() const { return fmt::format("chunks of {} rows", chunk_rows); }

CallParts PlanChoice::agreed() const { return {{fmt::format("chunk_rows = {}", chunk_rows), kPlanAdvice}}; }

std::string PlanChoice::text() const {
  return fmt::format(
      "{}, {}, tiles of {} x {}, {} row block{} at a time, {} worker{}, {} push worker{}, waits {} pieces ahead, "
      "publishes {} pieces behind",
      is_fused ? "fused" : "gather, then multiply", shared_text(), tile_rows, tile_cols, raster_rows,
      raster_rows == 1 ? "" : "s", workers, workers == 1 ? "" : "s", push_workers, push_workers == 1 ? "" : "s",
      cursors.load_ahead, cursors.publish_behind);
}

}  // namespace tilewire::ag_gemm
