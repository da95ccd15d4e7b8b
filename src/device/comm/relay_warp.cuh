// The warp that listens to the host while a call runs: it copies the host's abort word into the own arena, where many
// CTAs look at it, and is the relay role where the proxy announces arrivals (schedule/relay_role.h).
#pragma once

#include "device/comm/ring_ends.cuh"
#include "device/ptx/cluster.cuh"
#include "schedule/relay_role.h"

namespace tilewire {

// Publishes what the ring holds: true when there was something.
TILEWIRE_DEVICE bool relay_arrivals(const CallSpace& space, ArrivalTaker& taker) {
  if (!taker.has_next()) return false;
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

// By a whole warp, until the call has ended or this rank has given it up. Looks at host memory are few, for they slow
// all other traffic of the GPU: one lane looks for arrivals, and the abort word is looked at every few microseconds.
TILEWIRE_DEVICE void run_relay(const CallSpace& space) {
  constexpr uint32_t kIdleNs = 300, kPollsPerLook = 16;
  const CallView& view = space.view();
  if (view.control_page == nullptr) return;
  const bool has_ring = view.arrivals.entry_count > 0;
  const auto* host_abort = reinterpret_cast<const uint64_t*>(view.control_page + ControlPage::kAbort);
  uint64_t* own_abort = space.abort_word(space.frame().me);
  ArrivalTaker taker(space);
  for (uint32_t polls = 1;; ++polls) {
    if (has_ring && relay_arrivals(space, taker)) continue;
    if (ptx::load_relaxed_sys(&view.state->epoch) >= space.epoch()) return;
    if (ptx::load_relaxed_sys(own_abort) != 0) return;
    if (polls % kPollsPerLook == 0 && ptx::load_relaxed_sys(host_abort) != 0) ptx::store_release_sys(own_abort, 1);
    __nanosleep(kIdleNs);
  }
}

}  // namespace tilewire
