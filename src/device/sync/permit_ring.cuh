// Permits from one thread to another of its CTA, one for each piece of work and in order: what the giver acquired
// before it gave a permit, the taker may read. The giver is kPermits ahead at most.
#pragma once

#include "device/sync/pipeline.cuh"

namespace tilewire {

constexpr int32_t kPermits = 2;

class PermitRing {
 public:
  TILEWIRE_DEVICE explicit PermitRing(PipelineBarriers<kPermits> barriers) : barriers_(barriers) {}

  // The giver: room first, so that it looks at the next work only when that is near.
  TILEWIRE_DEVICE void wait_room() const {
    while (!ptx::mbarrier_try_wait(barriers_.empty(cursor_.stage), cursor_.parity ^ 1)) {
    }
  }
  TILEWIRE_DEVICE void give() {
    ptx::mbarrier_arrive(barriers_.full(cursor_.stage));
    cursor_.next();
  }

  // Other threads that wait for room with the giver: it has given.
  TILEWIRE_DEVICE void skip() { cursor_.next(); }

  // The taker.
  TILEWIRE_DEVICE void take() {
    while (!ptx::mbarrier_try_wait(barriers_.full(cursor_.stage), cursor_.parity)) {
    }
    ptx::mbarrier_arrive(barriers_.empty(cursor_.stage));
    cursor_.next();
  }

 private:
  PipelineBarriers<kPermits> barriers_;
  PipelineCursor<kPermits> cursor_;
};

}  // namespace tilewire
