// Tiles that clusters take when they are near the end of what they have, instead of a share dealt out beforehand: SMs
// are not equally fast, and the last tiles of all then end at about the same time. The order of tiles stays; only who
// has which is open.
//
// A unit is what a cluster takes: one tile for each of its CTAs, beside each other in the order, or a work of all of them.
// The first one of a cluster is that of its number. The warp that waits for inputs (load.cuh: pass_gate) takes the next one when the
// loader has asked for it, in the first CTA of the cluster, and tells all warps of the cluster that follow the walk.
#pragma once

#include "device/ptx/control.cuh"
#include "device/ptx/memory_order.cuh"
#include "device/sync/permit_ring.cuh"

namespace tilewire {

// A kernel parameter.
struct UnitCounter {
  uint32_t* taken = nullptr;  // in device memory: units taken beside the first ones. 0 between launches
  uint32_t units = 0;
  uint32_t clusters = 1;
};

// What has been dealt, in each CTA. No slot is written again before all have read it, without asking them: a unit is
// taken when the loader is at most kPermits units before it, and that one has at most kStages stages in front of warps
// that have read the numbers of what they work on, and of the unit before.
class DealRing {
 public:
  static constexpr uint32_t kSlots = 16;
  static constexpr uint32_t kPauseNs = 100;
  static constexpr int32_t kSharedBytes = kSlots * 12;
  template <int32_t kStages>
  static constexpr bool kFits = kStages + kPermits + 1 <= static_cast<int32_t>(kSlots);

  TILEWIRE_DEVICE explicit DealRing(uint32_t base) : base_(base) {}

  // By one thread, before the barrier that makes barriers known to the cluster. `first`: the unit that is known.
  TILEWIRE_DEVICE void init(uint32_t first) const {
    for (uint32_t slot = 0; slot < kSlots; ++slot) ptx::mbarrier_init(full(slot), 1);
    ptx::store_shared(value(0), first);
    ptx::mbarrier_arrive(full(0));
  }
  // By one thread of each CTA, for each number.
  TILEWIRE_DEVICE void expect(uint32_t number) const { ptx::mbarrier_arrive_expect(full(number % kSlots), 4); }
  // By one thread for all CTAs of the cluster.
  template <int32_t kClusterCtas>
  TILEWIRE_DEVICE void tell(uint32_t number, uint32_t unit) const {
    const uint32_t slot = number % kSlots;
    if constexpr (kClusterCtas == 1) {
      ptx::store_async_in_cluster(value(slot), unit, full(slot));
    } else {
      for (uint32_t cta = 0; cta < kClusterCtas; ++cta) {
        ptx::store_async_in_cluster(ptx::map_to_cta(value(slot), cta), unit, ptx::map_to_cta(full(slot), cta));
      }
    }
  }
  // By those who follow. Computing warps come long before it is told: they do not take turns from those that compute.
  TILEWIRE_DEVICE uint32_t wait(uint32_t number) const {
    const uint32_t slot = number % kSlots, parity = number / kSlots % 2;
    while (!ptx::mbarrier_try_wait_cluster(full(slot), parity)) __nanosleep(kPauseNs);
    return ptx::load_shared(value(slot));
  }

 private:
  TILEWIRE_DEVICE uint32_t full(uint32_t slot) const { return base_ + 8 * slot; }
  TILEWIRE_DEVICE uint32_t value(uint32_t slot) const { return base_ + 8 * kSlots + 4 * slot; }

  uint32_t base_;
};

// A compute role (with take(tile, work)) as one warp or thread follows it in a CTA of a cluster. kIsOfCtaValue: each CTA has
// a tile of its own.
template <class Role, int32_t kClusterCtas, bool kIsOfCtaValue = true>
class DealtRole {
 public:
  using Work = typename Role::Work;
  static constexpr bool kIsOfCta = kIsOfCtaValue;

  TILEWIRE_DEVICE DealtRole(const Role& role, const UnitCounter& counter, DealRing ring)
      : role_(role), counter_(counter), ring_(ring) {}

  TILEWIRE_DEVICE bool next(Work& w) {
    const uint32_t unit = ring_.wait(number_++);
    const uint32_t tile = kIsOfCta ? unit * kClusterCtas + cta() : unit;
    return unit < counter_.units && role_.take(tile, w);
  }
  TILEWIRE_DEVICE Need need(const Work& w, int32_t i) const { return role_.need(w, i); }

  // By one thread of each CTA, before it follows: makes the next unit known. Each unit that is taken makes its cluster
  // ask once more, so there are as many numbers as units, and the counter is at 0 when all have their last one.
  TILEWIRE_DEVICE void deal() const {
    if (number_ == 0) return;
    ring_.expect(number_);
    if (cta() != 0) return;
    const uint32_t unit = counter_.clusters + ptx::count_around(counter_.taken, counter_.units - 1);
    ring_.template tell<kClusterCtas>(number_, unit);
  }

 private:
  // A computing thread has no register left for it.
  TILEWIRE_DEVICE static uint32_t cta() { return ptx::made_anew(blockIdx.x) % kClusterCtas; }

  Role role_;
  const UnitCounter& counter_;
  DealRing ring_;
  uint32_t number_ = 0;  // units followed so far
};

}  // namespace tilewire
