// The warp that listens to the host while a call runs: it copies the host's abort word into the own arena, where many
// CTAs look at it, and is the relay role where the proxy announces arrivals (schedule/relay_role.h).
#pragma once

#include "device/comm/ring_ends.cuh"
#include "device/ptx/cluster.cuh"
#include "schedule/relay_role.h"

namespace tilewire {

// Tells the warp that the call is over: a word in shared memory, 0 before the call.
class CallOver {
 public:
  static constexpr int32_t kSharedBytes = 16;

  TILEWIRE_DEVICE explicit CallOver(uint32_t address) : address_(address) {}
  TILEWIRE_DEVICE void init() const { ptx::store_shared(address_, 0); }
  TILEWIRE_DEVICE void tell() const { ptx::store_shared(address_, 1); }
  TILEWIRE_DEVICE bool is_over() const { return ptx::load_shared(address_) != 0; }

 private:
  uint32_t address_;
};

// Publishes what the ring holds: true when there was something.
TILEWIRE_DEVICE bool relay_arrivals(const CallSpace& space, ArrivalTaker& taker) {
  Immediate arrival;
  uint64_t slot;
  const int32_t count = taker.take(arrival, slot);
  if (static_cast<int32_t>(threadIdx.x % 32) < count) {
    RelayRole role(space.frame().me, slot);
    RelayWork w;
    role.next(w);
    w.arrival = arrival;
    const Publish p = role.publish(w, 0);
    // Several of a batch may be for one word, and a peer is a call ahead at times: the later epoch stays.
    ptx::max_release_sys(space.word(p.to, p.word), arrival.epoch);
  }
  if (count > 0) taker.release(count);
  return count > 0;
}

// By a whole warp, until the call is over.
TILEWIRE_DEVICE void run_relay(const CallSpace& space, CallOver over) {
  constexpr uint32_t kIdleNs = 200;
  const bool has_ring = space.view().arrivals.entry_count > 0;
  const auto* host_abort = reinterpret_cast<const uint64_t*>(space.view().control_page + ControlPage::kAbort);
  if (space.view().control_page == nullptr) return;
  ArrivalTaker taker(space);
  while (!__any_sync(0xffffffff, over.is_over())) {
    const bool is_busy = has_ring && relay_arrivals(space, taker);
    if (is_busy) continue;
    if (threadIdx.x % 32 == 0 && ptx::load_relaxed_sys(host_abort) != 0) {
      ptx::store_release_sys(space.abort_word(space.frame().me), 1);
    }
    __nanosleep(kIdleNs);
  }
}

}  // namespace tilewire
