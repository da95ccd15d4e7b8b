// Permits from one thread to another of its CTA, one for each piece of work and in order: what the giver acquired
// before it gave a permit, the taker may read. The giver looks at a work when the taker has asked for it, which it does
// some time before it takes it; the first one needs no asking.
#pragma once

#include "device/sync/pipeline.cuh"

namespace tilewire {

constexpr int32_t kPermits = 4;

class PermitRing {
 public:
  TILEWIRE_DEVICE explicit PermitRing(PipelineBarriers<kPermits> barriers) : barriers_(barriers) {}

  // The giver, for most of a work. It takes no turns from warps that compute.
  TILEWIRE_DEVICE void wait_asked() {
    // The barrier of the first stage is a round behind, for the first work was not asked for.
    const uint32_t parity = cursor_.stage == 0 ? cursor_.parity ^ 1 : cursor_.parity;
    while (!ptx::mbarrier_try_wait(barriers_.empty(cursor_.stage), parity)) __nanosleep(kPauseNs);
  }
  TILEWIRE_DEVICE void give() {
    ptx::mbarrier_arrive(barriers_.full(cursor_.stage));
    cursor_.next();
  }

  // Other threads that wait with the giver: it has given.
  TILEWIRE_DEVICE void skip() { cursor_.next(); }

  // The taker: for the next work that was not asked for, at most kPermits ahead of the one taken last.
  TILEWIRE_DEVICE void ask() {
    asked_ = (asked_ + 1) % kPermits;
    ptx::mbarrier_arrive(barriers_.empty(asked_));
  }
  TILEWIRE_DEVICE void take() {
    while (!ptx::mbarrier_try_wait(barriers_.full(cursor_.stage), cursor_.parity)) {
    }
    cursor_.next();
  }

 private:
  static constexpr uint32_t kPauseNs = 100;

  PipelineBarriers<kPermits> barriers_;
  PipelineCursor<kPermits> cursor_;
  uint32_t asked_ = 0;  // the stage of the work asked for last
};

}  // namespace tilewire
