// Plans of the fused kernel: problem -> candidates -> predicted cost -> plan. Pure host code that needs no CUDA.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "device/tile/tile_form.h"
#include "ops/gemm_rs/plan.h"
#include "planning/op_plans.h"
#include "reduction/tiled_plan.h"
#include "schedule/simulator/timed_run.h"
#include "schedule/topology_tables.h"

namespace tilewire::gemm_rs {

class FusedPlanner;  // device_plan.cc

// The part of a plan that a kernel needs: see reduction/tiled_plan.h.
struct FusedPlan {
  using Problem = gemm_rs::Problem;
  using Planner = FusedPlanner;
  static constexpr std::array kForms = {form_numbers<WithRoomForSums<Cooperative128x256>>(),
                                        form_numbers<WithRoomForSums<PingPong128x128>>(),
                                        form_numbers<WithRoomForSums<PingPong64x128>>()};

  PlanChoice choice;
  int64_t tile_rows = kForms[0].work_rows();
  int64_t tile_cols = kForms[0].work_cols();

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
  visit("own_behind", plan.choice.own_behind, NumberRange{0, 1 << 20});
  for_each_tile_field(plan, visit);
}

std::string to_json(const FusedPlan& plan);

class FusedTables : public TiledTables<ScheduleTables> {
 public:
  FusedTables(const Problem& problem, const FusedPlan& plan, const PlanContext& context);
};

// How long a call of GPU ranks takes, as simulate() says of CPU ranks (planning/op_simulation.h); clusters for workers.
TimedReport simulate(const Problem& problem, const FusedPlan& plan, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace);

}  // namespace tilewire::gemm_rs

extern template struct tilewire::PlansOf<tilewire::gemm_rs::FusedPlan>;
