// Plans of the fused kernel: problem -> candidates -> predicted cost -> plan. Pure host code that needs no CUDA.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "device/tile/tile_form.h"
#include "ops/gemm_rs/plan.h"

namespace tilewire::gemm_rs {

// What the fused kernel is built in, a source file each (device_*x*.cu).
inline constexpr std::array kFusedForms = {form_numbers<WithRoomForWords<Cooperative128x256>>(),
                                           form_numbers<WithRoomForWords<PingPong128x128>>(),
                                           form_numbers<WithRoomForWords<PingPong64x128>>()};

class FusedPlanner;  // device_plan.cc

// The part of a plan that a kernel needs. Of the choice: workers are clusters, reduce_workers teams of warps beside their
// tiles; cursors count for nothing.
struct FusedPlan {
  using Problem = gemm_rs::Problem;
  using Planner = FusedPlanner;

  PlanChoice choice;
  // Those of a form's works; this rank's own, as a chunk may be several works.
  int64_t tile_rows = kFusedForms[0].work_rows();
  int64_t tile_cols = kFusedForms[0].work_cols();

  // Throws Error(invalid_argument) naming the field that is missing, unknown or out of range.
  static FusedPlan from_json(const std::string& json);
  std::string shared_text() const;
  CallParts agreed() const;
  std::string text() const;
};

// As that of PlanChoice, and the numbers that a kernel has besides.
template <class Fused, class Visit>
requires std::is_same_v<std::remove_const_t<Fused>, FusedPlan>
void for_each_field(Fused& plan, Visit&& visit) {
  for_each_field(plan.choice, visit);
  visit("band_blocks", plan.choice.band_blocks, NumberRange{1, 1 << 20});
  visit("tile_rows", plan.tile_rows, NumberRange{1, 1024});
  visit("tile_cols", plan.tile_cols, NumberRange{1, 1024});
}

std::string to_json(const FusedPlan& plan);

// The form whose works have the tiles of the plan; null: none has.
const FormNumbers* form_of(const FusedPlan& plan);

// The tables behind the schedule that a kernel walks: those of the plan's choice, with who does what on the GPU. One
// source for the kernel and for reports.
class FusedTables {
 public:
  FusedTables(const Problem& problem, const FusedPlan& plan, const PlanContext& context);

  Schedule schedule(Epoch epoch) const;
  int32_t ctas() const { return ctas_; }

 private:
  ScheduleTables tables_;
  int32_t ctas_ = 0, workers_ = 0, reduce_workers_ = 0;
};

}  // namespace tilewire::gemm_rs

extern template struct tilewire::PlansOf<tilewire::gemm_rs::FusedPlan>;
