// Plans of the fused kernel: problem -> candidates -> predicted cost -> plan. Pure host code that needs no CUDA.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "device/tile/tile_form.h"
#include "ops/ag_gemm/plan.h"
#include "schedule/simulator/timed_run.h"
#include "schedule/topology_tables.h"

namespace tilewire::ag_gemm {

// What the fused kernel is built in, a source file each (device_*x*.cu).
inline constexpr std::array kFusedForms = {form_numbers<WithSpareRoom<Cooperative128x256>>(),
                                           form_numbers<WithSpareRoom<PingPong128x192>>(),
                                           form_numbers<WithSpareRoom<PingPong64x128>>()};

class FusedPlanner;  // device_plan.cc

// The part of a plan that a kernel needs: tile_rows, tile_cols are those of a form, workers the CTAs that compute, whole
// clusters of them. raster_rows counts in whole clusters too, and is rounded up.
struct FusedPlan {
  using Problem = ag_gemm::Problem;
  using Planner = FusedPlanner;

  PlanChoice choice;
  // SMs that only push; with several nodes one more forwards. 0: warps beside the tiles do both.
  int32_t push_ctas = 0;
  uint32_t pace_clocks = 0;  // of each such warp, from one piece of 4 KiB to the next
  bool own_in_place = true;  // own rows are multiplied from where the caller has them

  // Throws Error(invalid_argument) naming the field that is missing, unknown or out of range.
  static FusedPlan from_json(const std::string& json);
  std::string shared_text() const { return choice.shared_text(); }
  std::string text() const;
};

// As that of PlanChoice, and the numbers that a kernel has besides.
template <class Fused, class Visit>
requires std::is_same_v<std::remove_const_t<Fused>, FusedPlan>
void for_each_field(Fused& plan, Visit&& visit) {
  for_each_field(plan.choice, visit);
  visit("push_ctas", plan.push_ctas, NumberRange{0, 1024});
  visit("pace_clocks", plan.pace_clocks, NumberRange{0, 1 << 20});
  visit("own_in_place", plan.own_in_place, NumberRange{0, 1});
}

std::string to_json(const FusedPlan& plan);

// The form that has the tiles of the plan; null: none has.
const FormNumbers* form_of(const PlanChoice& choice);

// CTAs that only communicate, whole clusters of them: beside those that push one forwards, where there are several nodes.
int32_t comm_ctas_of(int32_t push_ctas, const Topology& topology, const FormNumbers& form);

// In whole clusters: theirs are row blocks beside each other in the order.
void walk_in_clusters(TileGrid& grid, const FormNumbers& form);

// The tables behind the schedule that a kernel walks: those of the plan's choice, with who does what on the GPU. One
// source for the kernel, for reports and for the simulation. Gathered rows that the caller wants are copied behind the
// kernel: no tile stands for them.
//
// CTAs of a cluster have row blocks beside each other in the order, of the same columns. Where one is left over it gets
// an empty one beside it, which is the last.
class FusedTables {
 public:
  FusedTables(const Problem& problem, const FusedPlan& plan, const PlanContext& context);

  Schedule schedule(Epoch epoch) const;
  const Problem& problem() const { return problem_; }
  int32_t comm_ctas() const { return comm_ctas_; }
  int32_t ctas() const { return ctas_; }  // with those that only communicate

 private:
  Problem problem_;
  FusedPlan plan_;
  ScheduleTables tables_;
  std::vector<int32_t> row_order_;
  int32_t comm_ctas_ = 0, ctas_ = 0;
  int32_t workers_ = 0, push_workers_ = 0, forward_workers_ = 0;
};

// The best plan for a rank that may take `context.workers` SMs, of which `push_ctas` and more only communicate; otherwise as
// make_plan<FusedPlan>(), where none does.
PlanOf<FusedPlan> make_fused_plan(const Problem& problem, const PlanContext& context, int32_t push_ctas);

// How long a call of GPU ranks takes, as simulate() says of CPU ranks (planning/op_simulation.h); clusters for workers.
TimedReport simulate(const Problem& problem, const FusedPlan& plan, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace);

}  // namespace tilewire::ag_gemm

extern template struct tilewire::PlansOf<tilewire::ag_gemm::FusedPlan>;
