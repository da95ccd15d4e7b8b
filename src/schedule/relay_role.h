// The relay role: takes arrivals that the proxy announced, in the order of its arrival ring, and publishes their words
// in the own flag area. It serves every op, so it does not know which arrivals a call expects; it runs until the call
// is over. Arrivals of a peer that is one call ahead are published as well, with their own epoch.
#pragma once

#include <cstdint>

#include "schedule/role.h"
#include "schedule/wire.h"

namespace tilewire {

struct RelayWork : WorkBase {
  uint64_t slot = 0;  // number of the entry since creation, never reset
};

class RelayRole {
 public:
  using Work = RelayWork;
  TILEWIRE_HD constexpr RelayRole(Rank me, uint64_t first_slot) : me_(me), slot_(first_slot) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    w = Work{};
    w.slot = slot_++;
    return true;
  }
  TILEWIRE_HD constexpr Publish publish(const Immediate& arrival) const { return {me_, arrival.word}; }

 private:
  Rank me_;
  uint64_t slot_;
};

}  // namespace tilewire
