// Plans of fused kernels that sum products over ranks: every CTA computes, in clusters of a tile form. Plan is the op's:
//   choice                    its PlanChoice: workers are clusters, reduce_workers teams of warps; cursors count for nothing
//   tile_rows, tile_cols      those of a form's works; this rank's own, as a chunk may be several works
//   kForms                    the forms that the kernel is built in, a source file each (device_*x*.cu)
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/bytes.h"
#include "device/comm/device_rank.h"
#include "device/tile/tile_form.h"
#include "planning/plan_parts.h"

namespace tilewire {

// The form whose works have the tiles of the plan; null: none has.
template <class Plan>
const FormNumbers* form_of(const Plan& plan) {
  for (const FormNumbers& form : Plan::kForms) {
    if (form.work_rows() == plan.tile_rows && form.work_cols() == plan.tile_cols) return &form;
  }
  return nullptr;
}

template <class Plan>
const char* name_of_form(const Plan& plan) {
  const FormNumbers* form = form_of(plan);
  return form == nullptr ? "of no form" : form->name;
}

// The numbers of a plan that follow from the form, for its for_each_field().
template <class Plan, class Visit>
void for_each_tile_field(Plan& plan, Visit&& visit) {
  visit("tile_rows", plan.tile_rows, NumberRange{1, 1024});
  visit("tile_cols", plan.tile_cols, NumberRange{1, 1024});
}

// Who does what on a GPU by the plan: the rest of a rank's schedule is that of its choice.
struct TiledGrid {
  int32_t ctas = 0;
  int32_t workers = 0;

  template <class Plan>
  explicit TiledGrid(const Plan& plan) {
    const FormNumbers& form = *form_of(plan);
    const int32_t least = std::max(kRankWarps + 1, plan.choice.workers * form.cluster_ctas());
    ctas = static_cast<int32_t>(round_up(least, form.launch_ctas));
    workers = ctas / form.cluster_ctas();
  }
};

// The tables behind the schedule that a kernel walks: those of the plan's choice (Tables), with who does what on the GPU.
// One source for the kernel and for reports.
template <class Tables>
class TiledTables {
 public:
  using Schedule = decltype(std::declval<const Tables&>().schedule(Epoch{}));

  Schedule schedule(Epoch epoch) const {
    Schedule schedule = tables_.schedule(epoch);
    schedule.workers = grid_.workers;
    schedule.reduce_workers = reduce_workers_;
    return schedule;
  }
  int32_t ctas() const { return grid_.ctas; }

 protected:
  // `most_teams(ctas)`: so many can there be.
  template <class Problem, class Plan, class MostTeams>
  TiledTables(const Problem& problem, const Plan& plan, const PlanContext& context, const MostTeams& most_teams)
      : tables_(problem, plan.choice, context),
        grid_(plan),
        reduce_workers_(std::min<int32_t>(plan.choice.reduce_workers, most_teams(grid_.ctas))) {}

 private:
  Tables tables_;
  TiledGrid grid_;
  int32_t reduce_workers_;
};

}  // namespace tilewire
