// Plans of the fused kernel: problem -> candidates -> predicted cost -> plan. Pure host code that needs no CUDA.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "device/attention/attention_form.h"
#include "ops/attention/plan.h"
#include "planning/op_plans.h"
#include "schedule/simulator/timed_run.h"
#include "schedule/topology_tables.h"

namespace tilewire::attention {

// What the fused kernel is built in, a source file each (device_*_*x*.cu).
inline constexpr std::array kFusedForms = {attention_form<AttentionWide128x128>(),
                                           attention_form<AttentionNarrow192x96>()};

// CTAs whose fourth warps do what each rank has to do: call, send, relay, release and forward.
inline constexpr int32_t kLeastCtas = 5;

// The form for heads of that size, whose rows tiles have and whose steps chunks are whole multiples of. Throws
// Error(invalid_argument) where there is none.
const AttentionForm& fused_form(int64_t head_dim);

class FusedPlanner;  // device_plan.cc

// The part of a plan that a kernel needs. It is in head-major order, tile_rows are those of the form, and a worker is a CTA:
// all of them compute, and warps beside them copy.
struct FusedPlan {
  using Problem = attention::Problem;
  using Planner = FusedPlanner;

  PlanChoice choice{
      .chunk_rows = kFusedForms[0].step, .tile_rows = kFusedForms[0].rows, .workers = kLeastCtas, .cursors = {}};
  uint32_t pace_clocks = 0;  // from one piece that a copying warp loads to the next, at least

  // Throws Error(invalid_argument) naming the field that is missing, unknown or out of range.
  static FusedPlan from_json(const std::string& json);
  std::string shared_text() const { return choice.shared_text(); }
  CallParts agreed() const { return choice.agreed(); }
  std::string text() const;
};

// As that of PlanChoice, and the number that a kernel has besides.
template <class Fused, class Visit>
requires std::is_same_v<std::remove_const_t<Fused>, FusedPlan>
void for_each_field(Fused& plan, Visit&& visit) {
  for_each_field(plan.choice, visit);
  visit("pace_clocks", plan.pace_clocks, NumberRange{0, 1 << 20});
}

std::string to_json(const FusedPlan& plan);

// How long a call of GPU ranks takes, as simulate() says of CPU ranks (planning/op_simulation.h).
TimedReport simulate(const Problem& problem, const FusedPlan& plan, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace);

}  // namespace tilewire::attention

extern template struct tilewire::PlansOf<tilewire::attention::FusedPlan>;
