// The roles of MoE dispatch by which every rank learns what all ranks will move.
//
//   count  counts the own tokens' experts into the own record, and gives it to the local peers
//   route  makes the rank's tables of the records of all ranks
// Records go to other nodes by the send role, and on to local peers there by the forward role.
#pragma once

#include <cstdint>

#include "ops/moe_dispatch/rank_schedule.h"

namespace tilewire::moe_dispatch {

struct CountWork : WorkBase {
  Rank to;  // the rank itself: its record comes into being
};

class CountRole {
 public:
  using Work = CountWork;
  TILEWIRE_HD explicit constexpr CountRole(const Schedule& s) : s_(s) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    if (step_ >= s_.width()) return false;
    w = Work{};
    w.publishes = 1;
    w.to = step_ == 0 ? s_.me() : s_.topology().local_peer(s_.me(), step_ - 1);
    ++step_;
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work&, int32_t) const { return {}; }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t) const { return {w.to, s_.counted(s_.me())}; }

 private:
  Kept<Schedule> s_;
  int32_t step_ = 0;
};

struct RouteWork : WorkBase {};

class RouteRole {
 public:
  using Work = RouteWork;
  TILEWIRE_HD explicit constexpr RouteRole(const Schedule& s) : s_(s) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    if (is_given_) return false;
    is_given_ = true;
    w = Work{};
    w.needs = 2 * s_.ranks();
    w.publishes = 1;
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work&, int32_t i) const {
    const Rank source{i / 2};
    return i % 2 == 0 ? s_.begun(source) : Need{s_.counted(source), 0};
  }
  TILEWIRE_HD constexpr Publish publish(const Work&, int32_t) const { return {s_.me(), s_.routed()}; }

 private:
  Kept<Schedule> s_;
  bool is_given_ = false;
};

}  // namespace tilewire::moe_dispatch
