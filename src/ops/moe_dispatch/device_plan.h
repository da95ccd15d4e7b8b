// Plans of the fused kernel: problem -> candidates -> predicted cost -> plan. Pure host code that needs no CUDA.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "device/tile/tile_form.h"
#include "ops/moe_dispatch/plan.h"
#include "planning/op_plans.h"
#include "schedule/simulator/timed_run.h"
#include "schedule/topology_tables.h"

namespace tilewire::moe_dispatch {

class FusedPlanner;  // device_plan.cc

// The part of a plan that a kernel needs: tile_rows, tile_cols are those that a cluster of a form computes together,
// workers the CTAs, whole clusters of them.
struct FusedPlan {
  using Problem = moe_dispatch::Problem;
  using Planner = FusedPlanner;
  // What the kernel is built in, a source file each (device_*x*.cu).
  static constexpr std::array kForms = {form_numbers<WithRoomForRows<PingPong128x128>>(),
                                        form_numbers<WithRoomForRows<Cooperative128x256InLine>>()};

  PlanChoice choice{.tile_rows = kForms[0].work_rows(), .tile_cols = kForms[0].work_cols(), .cursors = {}};

  // Throws Error(invalid_argument) naming the field that is missing, unknown or out of range.
  static FusedPlan from_json(const std::string& json);
  std::string shared_text() const { return choice.shared_text(); }
  CallParts agreed() const { return choice.agreed(); }
  std::string text() const { return choice.text(); }
};

template <class Fused, class Visit>
requires std::is_same_v<std::remove_const_t<Fused>, FusedPlan>
void for_each_field(Fused& plan, Visit&& visit) { for_each_field(plan.choice, visit); }

std::string to_json(const FusedPlan& plan);

// The form whose clusters compute the tiles of the plan; null: none does.
const FormNumbers* form_of(const FusedPlan& plan);

// How long a call of GPU ranks takes, as simulate() says of CPU ranks (planning/op_simulation.h); clusters for workers.
TimedReport simulate(const Problem& problem, const FusedPlan& plan, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace);

}  // namespace tilewire::moe_dispatch

extern template struct tilewire::PlansOf<tilewire::moe_dispatch::FusedPlan>;
