// The partial sums of a reduction as tiles of a GEMM: the way of a tile from the epilogue straight into its slot at the rail
// partner of the owner.
#pragma once

#include "device/comm/call_view.cuh"
#include "device/reduction/reduction_view.cuh"
#include "device/tile/shared_tiles.cuh"
#include "device/tile/store.cuh"
#include "schedule/reduction_tiles.h"

namespace tilewire {

// Whether this was the last one of `parts`, which all come in every call: half of the counter goes round with them.
TILEWIRE_DEVICE bool is_last_part(uint64_t* counter, int32_t parts) {
  const auto last = static_cast<uint32_t>(parts - 1);
  return last == 0 || ptx::count_around_acq_rel_gpu(reinterpret_cast<uint32_t*>(counter), last) == last;
}

// See MatrixTarget: the slot of a chunk, or that at each rank of the node. It is published by the warpgroup that finishes last of all that have a part of the
// chunk, when its own stores are complete.
template <class TileRole, class Schedule>
class SlotTarget {
 public:
  using Work = typename TileRole::Work;

  // What boxes have alike is found once: each step of it waits for memory.
  TILEWIRE_DEVICE SlotTarget(const Schedule& s, const CallSpace& space, const ReductionView& view,
                             int32_t parts_of_work, const Work& w)
      : s_(s),
        space_(space),
        view_(view),
        parts_of_work_(parts_of_work),
        w_(w),
        map_(view.map_number(ArenaLayout::half_of(space.epoch()), s.width(),
                             s.all_take() ? 0 : s.topology().local(s.taker(w.chunk.owner)).value,
                             s.is_last(w.chunk_columns))),
        slot_(static_cast<int32_t>(s.partial_slot(s.me(), w.chunk))) {}

  TILEWIRE_DEVICE void store(uint32_t box, TileOrigin at) const {
    const int32_t col = at.col - static_cast<int32_t>(w_.chunk_columns.begin),
                  row = at.row - static_cast<int32_t>(w_.chunk_rows.begin);
    int32_t map = map_, local = 0;
    do {
      ptx::tma_store(view_.slots + map, box, col, row, slot_);
      map += ReductionView::kMapsOfRank;
    } while (s_.all_take() && ++local < s_.width());
  }

  TILEWIRE_DEVICE void finish(uint32_t mark) const {
    ptx::bulk_wait<0>();
    if (mark != 0 || !is_last_part(view_.made + w_.tile, parts_of_work_ * w_.works)) return;
    const typename TileRole::Chunks role(s_, 0);
    for (int32_t i = 0; i < w_.publishes; ++i) space_.publish(role.publish(w_, i));
  }

 private:
  const Schedule& s_;
  const CallSpace& space_;
  const ReductionView& view_;
  int32_t parts_of_work_;
  const Work& w_;
  int32_t map_;  // of the rank of the node that gets it, or the first one of all
  int32_t slot_;
};

// Partial sums in the wire's dtype, and nothing added to them.
class WireEpilogue {
 public:
  static constexpr bool kMayAdd = true;
  static constexpr bool kMayConvert = true;

  TILEWIRE_DEVICE explicit WireEpilogue(const ReductionView& view) : view_(view) {}
  TILEWIRE_DEVICE OutType out() const { return view_.wire; }
  template <class Work>
  TILEWIRE_DEVICE bool adds(const Work&) const {
    return view_.wire != OutType::as_operands;
  }
  template <class Work>
  TILEWIRE_DEVICE float addend(const Work&, int32_t) const {
    return kNothingAdded;
  }

 private:
  const ReductionView& view_;
};

// See TileMaps.
template <class Form, class TileRole, class Schedule>
class PartialTileMaps {
 public:
  using Work = typename TileRole::Work;

  TILEWIRE_DEVICE PartialTileMaps(const CUtensorMap& a, const CUtensorMap& b, const Schedule& s, const CallSpace& space,
                                  const ReductionView& view)
      : a_(a), b_(b), s_(s), space_(space), view_(view) {}

  TILEWIRE_DEVICE const CUtensorMap* a_of(const Work&, int32_t&) const { return &a_; }
  TILEWIRE_DEVICE const CUtensorMap* b_of(const Work&) const { return &b_; }
  TILEWIRE_DEVICE SlotTarget<TileRole, Schedule> target(const Work& w) const {
    using Plan = FormPlan<Form>;
    return {s_, space_, view_, Plan::kClusterCtas * Plan::kGroupsPerTile, w};
  }
  TILEWIRE_DEVICE void prefetch() const {
    if (s_.map.total_chunks() == 0) return;
    ptx::prefetch_tensor_map(&a_);
    ptx::prefetch_tensor_map(&b_);
  }

 private:
  const CUtensorMap& a_;
  const CUtensorMap& b_;
  const Schedule& s_;
  const CallSpace& space_;
  const ReductionView& view_;
};

}  // namespace tilewire
