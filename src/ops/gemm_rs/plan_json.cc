#include "executor/plan_json.h"

#include <fmt/format.h>

#include "ops/gemm_rs/plan.h"

namespace tilewire::gemm_rs {

std::string to_json(const PlanChoice& choice) { return choice_to_json(kCallName, choice); }
PlanChoice PlanChoice::from_json(const std::string& json) { return choice_from_json<PlanChoice>(kCallName, json); }

std::string PlanChoice::shared_text() const {
  return fmt::format("chunks of {} x {}, {}", chunk_rows, chunk_cols,
                     window == 0 ? "a slot for each" : fmt::format("a window of {}", window));
}

std::string PlanChoice::agreed_text() const {
  return fmt::format("chunk_rows = {}, chunk_cols = {}, window = {}", chunk_rows, chunk_cols, window);
}

std::string PlanChoice::text() const {
  return fmt::format("{}, {}, {} worker{}, {} reduce worker{}, waits {} pieces ahead, publishes {} pieces behind",
                     is_fused ? "fused" : "multiply, then reduce", shared_text(), workers, workers == 1 ? "" : "s",
                     reduce_workers, reduce_workers == 1 ? "" : "s", cursors.load_ahead, cursors.publish_behind);
}

}  // namespace tilewire::gemm_rs
