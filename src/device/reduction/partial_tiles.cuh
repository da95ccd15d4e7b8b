// The partial sums of a reduction as tiles of a GEMM: the way of a tile from the epilogue straight into its slot at the rail
// partner of the owner.
#pragma once

#include "device/comm/call_view.cuh"
#include "device/reduction/reduction_view.cuh"
#include "device/tile/shared_tiles.cuh"
#include "device/tile/store.cuh"

namespace tilewire {

// Whether this was the last one of `parts`, which all come in every call: half of the counter goes round with them.
TILEWIRE_DEVICE bool is_last_part(uint64_t* counter, int32_t parts) {
  const auto last = static_cast<uint32_t>(parts - 1);
  return last == 0 || ptx::count_around_acq_rel_gpu(reinterpret_cast<uint32_t*>(counter), last) == last;
}

// See MatrixTarget: the slot of a chunk, or that at each rank of the node. It is published by the warpgroup that finishes
// last of all that have a part of the chunk, when its own stores are complete.
class SlotTarget {
 public:
  TILEWIRE_DEVICE SlotTarget(const CallSpace& space, const ReductionView& view, int32_t parts_of_work,
                             const TileWork& w)
      : space_(space), view_(view), parts_of_work_(parts_of_work), w_(w) {}

  TILEWIRE_DEVICE void store(uint32_t box, TileOrigin at) const {
    const int32_t col = at.col - w_.chunk_col, row = at.row - w_.chunk_row;
    const CUtensorMap* map = view_.slots + w_.map;
    if (ArenaLayout::half_of(space_.epoch()) != 0) map += view_.half_maps;
    int32_t taker = 0;
    do {
      ptx::tma_store(map + taker * kSlotMaps, box, col, row, w_.slot);
    } while (++taker < w_.takers);
  }

  TILEWIRE_DEVICE void finish(uint32_t mark) const {
    ptx::bulk_wait<0>();
    if (mark != 0 || !is_last_part(view_.made + w_.tile, parts_of_work_ * w_.works)) return;
    space_.publish_all(TakenRole<TileWork>(view_.tiles), w_);
  }

 private:
  const CallSpace& space_;
  const ReductionView& view_;
  int32_t parts_of_work_;
  const TileWork& w_;
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
template <class Form>
class PartialTileMaps {
 public:
  TILEWIRE_DEVICE PartialTileMaps(const CUtensorMap& a, const CUtensorMap& b, const CallSpace& space,
                                  const ReductionView& view)
      : a_(a), b_(b), space_(space), view_(view) {}

  TILEWIRE_DEVICE const CUtensorMap* a_of(const TileWork&, int32_t&) const { return &a_; }
  TILEWIRE_DEVICE const CUtensorMap* b_of(const TileWork&) const { return &b_; }
  TILEWIRE_DEVICE SlotTarget target(const TileWork& w) const {
    using Plan = FormPlan<Form>;
    return {space_, view_, Plan::kClusterCtas * Plan::kGroupsPerTile, w};
  }
  TILEWIRE_DEVICE void prefetch() const {
    if (!view_.has_tiles) return;
    ptx::prefetch_tensor_map(&a_);
    ptx::prefetch_tensor_map(&b_);
  }

 private:
  const CUtensorMap& a_;
  const CUtensorMap& b_;
  const CallSpace& space_;
  const ReductionView& view_;
};

}  // namespace tilewire
