// The roles of both forms as one, for a kernel: it has each of them once.
#pragma once

#include <cstdint>

#include "ops/gemm_ar/schedule.h"
#include "schedule/reduction_tiles.h"

namespace tilewire::gemm_ar {

// A role of two shots and its like of one shot. Of their works only the chunk counts.
template <class TwoShots, class OneShot>
class EitherRole {
 public:
  struct Work : WorkBase {
    OwnedChunk chunk;
  };
  TILEWIRE_HD constexpr EitherRole(const Schedule& s, int32_t worker)
      : s_(s), two_shots_(s, worker), one_shot_(s, worker) {}

  TILEWIRE_HD constexpr bool next(Work& w) { return s_.is_one_shot ? next_of(one_shot_, w) : next_of(two_shots_, w); }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    return s_.is_one_shot ? one_shot_.need(as<OneShot>(w), i) : two_shots_.need(as<TwoShots>(w), i);
  }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t i) const {
    return s_.is_one_shot ? one_shot_.publish(as<OneShot>(w), i) : two_shots_.publish(as<TwoShots>(w), i);
  }

 private:
  template <class Role>
  TILEWIRE_HD static constexpr bool next_of(Role& role, Work& w) {
    typename Role::Work of_role;
    if (!role.next(of_role)) return false;
    static_cast<WorkBase&>(w) = of_role;
    w.chunk = of_role.chunk;
    return true;
  }
  template <class Role>
  TILEWIRE_HD static constexpr typename Role::Work as(const Work& w) {
    typename Role::Work of_role{};
    static_cast<WorkBase&>(of_role) = w;
    of_role.chunk = w.chunk;
    return of_role;
  }

  Kept<Schedule> s_;
  TwoShots two_shots_;
  OneShot one_shot_;
};

using TileRole = PartialTileRole<EitherRole<PartialSumRole, one_shot::ComputeRole>, Schedule>;
using EitherReduceRole = EitherRole<NodeSumRole, one_shot::ReduceRole>;
using EitherFinishRole = EitherRole<FinishRole, one_shot::FinishRole>;

}  // namespace tilewire::gemm_ar
