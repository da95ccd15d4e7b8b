// The tables behind the Schedule of an op that sums a matrix over ranks; keep them as long as the schedule is used.
// OpSchedule derives from ReductionSchedule, Choice is the op's.
#pragma once

#include "planning/plan_parts.h"
#include "reduction/reduction_layout.h"
#include "schedule/reduction_schedule.h"
#include "schedule/reduction_tables.h"

namespace tilewire {

template <class OpSchedule>
class ReductionScheduleTables {
 public:
  // The schedule of call `epoch`.
  OpSchedule schedule(Epoch epoch) const {
    OpSchedule s = schedule_;
    s.frame.epoch = epoch;
    s.map = map_.view();
    return s;
  }

 protected:
  // What is the op's own is filled in by it.
  template <class Choice>
  ReductionScheduleTables(const ReductionCut& cut, const ReductionLayout& layout, const Choice& choice,
                          const PlanContext& context)
      : map_(context.topology, context.me, cut) {
    schedule_.frame = {.topology = context.topology, .arena = context.arena, .me = context.me};
    schedule_.map = map_.view();
    schedule_.buffers = layout.buffers;
    schedule_.workers = choice.workers;
    schedule_.reduce_workers = choice.reduce_workers;
    schedule_.is_fused = choice.is_fused;
  }

  OpSchedule schedule_;

 private:
  ReductionTables map_;
};

}  // namespace tilewire
