// The partial sums of a reduction as tiles of a GEMM: the way of a tile from the epilogue straight into its slot at the rail
// partner of the owner.
#pragma once

#include "device/comm/call_view.cuh"
#include "device/reduction/reduction_view.cuh"
#include "device/tile/shared_tiles.cuh"
#include "device/tile/store.cuh"
#include "schedule/reduction_tiles.h"

namespace tilewire {

// Whether this was the last one of `parts`, which all come in every call.
TILEWIRE_DEVICE bool is_last_part(uint64_t* counter, int32_t parts) {
  if (parts == 1) return true;
  const auto all = static_cast<uint64_t>(parts);
  return (ptx::fetch_add_acq_rel_gpu(counter, 1) + 1) % all == 0;
}

// See MatrixTarget: the slot of a chunk, or that at each rank of the node. It is published by the warpgroup that finishes last of all that have a part of the
// chunk, when its own stores are complete.
template <class TileRole, class Schedule>
class SlotTarget {
 public:
  using Work = typename TileRole::Work;

  TILEWIRE_DEVICE SlotTarget(const Schedule& s, const CallSpace& space, const ReductionView& view,
                             int32_t parts_of_work, const Work& w)
      : s_(s), space_(space), view_(view), parts_of_work_(parts_of_work), w_(w) {}

  TILEWIRE_DEVICE void store(uint32_t box, TileOrigin at) const {
    if (!s_.all_take()) {
      store_at(s_.topology().local(s_.taker(w_.chunk.owner)).value, box, at);
      return;
    }
#pragma unroll 1
    for (int32_t local = 0; local < s_.width(); ++local) store_at(local, box, at);
  }

  TILEWIRE_DEVICE void finish(uint32_t mark) const {
    ptx::bulk_wait<0>();
    if (mark != 0 || !is_last_part(view_.made + w_.tile, parts_of_work_ * w_.works)) return;
    const typename TileRole::Chunks role(s_, 0);
    for (int32_t i = 0; i < w_.publishes; ++i) space_.publish(role.publish(w_, i));
  }

 private:
  TILEWIRE_DEVICE void store_at(int32_t local, uint32_t box, TileOrigin at) const {
    const CUtensorMap* map =
        view_.slot_map(ArenaLayout::half_of(space_.epoch()), s_.width(), local, s_.is_last(w_.chunk_columns));
    ptx::tma_store(map, box, at.col - static_cast<int32_t>(w_.chunk_columns.begin),
                   at.row - static_cast<int32_t>(w_.chunk_rows.begin),
                   static_cast<int32_t>(s_.partial_slot(s_.me(), w_.chunk)));
  }

  const Schedule& s_;
  const CallSpace& space_;
  const ReductionView& view_;
  int32_t parts_of_work_;
  const Work& w_;
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
