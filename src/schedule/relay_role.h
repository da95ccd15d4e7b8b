// The relay role: takes arrivals that the proxy announced, in the order of its arrival ring, and publishes their words
// in the own flag area. It serves every op, so it does not know which arrivals a call expects: it has no end of its
// own, its environment stops it when the call is over. Arrivals of a peer that is one call ahead are published as well,
// with their own epoch and never lowering a word.
//
// It needs no word but an entry of the ring: whoever runs it takes entry `slot` and sets `arrival` before it publishes.
#pragma once

#include <cstdint>

#include "schedule/role.h"
#include "schedule/wire.h"

namespace tilewire {

struct RelayWork : WorkBase {
  uint64_t slot = 0;  // number of the entry since creation, never reset
  Immediate arrival;  // what it holds
};

class RelayRole {
 public:
  using Work = RelayWork;
  TILEWIRE_HD constexpr RelayRole(Rank me, uint64_t first_slot) : me_(me), slot_(first_slot) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    w = Work{};
    w.publishes = 1;
    w.slot = slot_++;
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work&, int32_t) const { return {}; }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t) const { return {me_, w.arrival.word}; }

 private:
  Rank me_;
  uint64_t slot_;
};

}  // namespace tilewire
