// The loader: fills the stages of tile after tile, by one thread; and the warp that waits for its inputs.
#pragma once

#include "device/ptx/memory_order.cuh"
#include "device/ptx/tma.cuh"
#include "device/tile/shared_tiles.cuh"

namespace tilewire {

constexpr uint16_t kBothCtas = 3;

// A box that this CTA needs alone, or its part of what its cluster shares.
template <bool kIsShared>
TILEWIRE_DEVICE void load_box(uint32_t to, const CUtensorMap* map, uint32_t full, int32_t x, int32_t y) {
  if constexpr (kIsShared) {
    ptx::tma_load_multicast(to, map, full, x, y, kBothCtas);
  } else {
    ptx::tma_load(to, map, full, x, y);
  }
}

template <bool kIsShared>
TILEWIRE_DEVICE void load_box(uint32_t to, const SlotOfMap& from, uint32_t full, int32_t x, int32_t y) {
  if constexpr (kIsShared) {
    ptx::tma_load_multicast(to, from.map, full, x, y, from.slot, kBothCtas);
  } else {
    ptx::tma_load(to, from.map, full, x, y, from.slot);
  }
}

template <class Form>
TILEWIRE_DEVICE void load_a(const SharedTiles<Form>& shared, const CUtensorMap* map, uint32_t stage, uint32_t full,
                            int32_t row, int32_t depth) {
  constexpr bool kIsShared = FormPlan<Form>::kClusterColTiles > 1;
  const int32_t part = kIsShared ? static_cast<int32_t>(shared.cta()) * (Form::kRows / 2) : 0;
  load_box<kIsShared>(shared.a(stage) + part * kSwizzleBytes, map, full, depth, row + part);
}

// K-major B is one box; N-major B is panels of 64 columns. A shared one is split along the rows of the stored matrix.
// `map`: a tensor map, or a slot of one.
template <class Form, bool kIsBNMajor, class Map>
TILEWIRE_DEVICE void load_b(const SharedTiles<Form>& shared, const Map& map, uint32_t stage, uint32_t full, int32_t col,
                            int32_t depth) {
  constexpr bool kIsShared = FormPlan<Form>::kClusterRowTiles > 1;
  constexpr int32_t kBoxRows = (kIsBNMajor ? kStageDepth : Form::kCols) / (kIsShared ? 2 : 1);
  const int32_t part = kIsShared ? static_cast<int32_t>(shared.cta()) * kBoxRows : 0;
  const uint32_t to = shared.b(stage) + part * kSwizzleBytes;
  if constexpr (kIsBNMajor) {
#pragma unroll
    for (int32_t panel = 0; panel < Form::kCols / 64; ++panel) {
      load_box<kIsShared>(to + panel * FormPlan<Form>::kBPanelBytes, map, full, col + 64 * panel, depth + part);
    }
  } else {
    load_box<kIsShared>(to, map, full, depth, col + part);
  }
}

// What waits for the inputs of a loader that arrive while the kernel runs. A warp of its own passes the gate, some
// works ahead, so that a look at a flag costs the loader nothing.
//   kWaits                  false: everything is there from the start, and no such warp is needed
//   bool pass(role, work)   by a whole warp: returns in all lanes when what the work needs is there, or false when that
//                           will not come: the stages are filled all the same, so that nobody is left waiting, and the
//                           tile is marked
struct OpenGate {
  static constexpr bool kWaits = false;
};

// A role whose pieces of work are dealt out while the kernel runs has to be told to (deal.cuh).
template <class Role>
concept IsDealt = requires(const Role& role) {
  role.deal();
};

template <class Form, class Role, class Gate>
TILEWIRE_DEVICE void pass_gate(const SharedTiles<Form>& shared, Role role, Gate gate) {
  PermitRing permits(shared.permits());
  const bool is_giver = threadIdx.x % 32 == 0;
  for (typename Role::Work w;;) {
    permits.wait_asked();
    if constexpr (IsDealt<Role>) {
      if (is_giver) role.deal();
      __syncwarp();
    }
    if (!role.next(w)) return;
    const bool is_here = gate.pass(role, w);
    if (is_giver && !is_here) shared.set_marks();
    if (is_giver) {
      permits.give();
    } else {
      permits.skip();
    }
  }
}

// When a loader asks for a work: so many stages before the work's own, some eight microseconds, in which a unit is taken
// and flags are looked at. No sooner, so that who is late does not take what others could begin at once.
class AskPlan {
 public:
  TILEWIRE_DEVICE explicit AskPlan(int32_t stages_per_tile) {
    constexpr int32_t kStagesAhead = 20;
    const int32_t ahead = (kStagesAhead + stages_per_tile - 1) / stages_per_tile;
    works_ahead_ = ahead < kPermits ? ahead : kPermits;
    const int32_t step = works_ahead_ * stages_per_tile - kStagesAhead;
    step_ = step > 0 ? step : 0;
  }
  // Before the first work: for those that are asked for at once.
  TILEWIRE_DEVICE void begin(PermitRing& permits) const {
    for (int32_t i = 1; i < works_ahead_; ++i) permits.ask();
  }
  // In each work, behind stage `step` of it.
  TILEWIRE_DEVICE void pass(int32_t step, PermitRing& permits) const {
    if (step == step_) permits.ask();
  }

 private:
  int32_t works_ahead_, step_;
};

template <class Config, bool kWaits, class Maps, class Role>
TILEWIRE_DEVICE void load_tiles(const SharedTiles<typename Config::Form>& shared, const Maps& maps, Role role,
                                int32_t stages_per_tile) {
  using Form = typename Config::Form;
  PipelineProducer<Form::kStages> pipe(shared.barriers());
  PermitRing permits(shared.permits());
  const AskPlan asks(stages_per_tile);
  if (kWaits) asks.begin(permits);
  for (typename Role::Work w; role.next(w);) {
    if constexpr (kWaits) {
      permits.take();
      ptx::fence_async_global();
    }
    const TileOrigin at = shared.template origin<Role>(w);
    int32_t a_row = at.row;
    const CUtensorMap* a = maps.a_of(w, a_row);
    const auto b = maps.b_of(w);
    for (int32_t step = 0; step < stages_per_tile; ++step) {
      const auto slot = pipe.acquire(FormPlan<Form>::kStageBytes);
      load_a<Form>(shared, a, slot.stage, slot.full, a_row, step * kStageDepth);
      load_b<Form, Config::kIsBNMajor>(shared, b, slot.stage, slot.full, at.col, step * kStageDepth);
      pipe.commit();
      if (kWaits) asks.pass(step, permits);
    }
  }
}

}  // namespace tilewire
