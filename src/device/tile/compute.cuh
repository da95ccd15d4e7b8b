// The computing warpgroups: stages to accumulators, accumulators to the output, tile after tile.
#pragma once

#include "device/ptx/wgmma.cuh"
#include "device/tile/store.cuh"

#include <utility>

namespace tilewire {

// The turns of two warpgroups of which one computes while the other stores. They keep the stages in order, too: without
// them one could wait for a stage two rounds ahead, and a pipeline wait cannot tell that from the round before.
template <bool kIsPingPong>
class Turn {
 public:
  TILEWIRE_DEVICE explicit Turn(uint32_t group) : group_(group) {
    if (kIsPingPong && group == 1) pass();
  }
  TILEWIRE_DEVICE void wait() const {
    if constexpr (kIsPingPong) ptx::named_barrier_sync(kTurnBarrier + group_, 2 * kWarpgroupThreads);
  }
  TILEWIRE_DEVICE void pass() const {
    if constexpr (kIsPingPong) ptx::named_barrier_arrive(kTurnBarrier + 1 - group_, 2 * kWarpgroupThreads);
  }

 private:
  uint32_t group_;
};

// Issues the matrix instructions of one stage. `group_row`: the first row of the tile that is the warpgroup's.
template <class Config, int kBlocks, int kRegisters>
TILEWIRE_DEVICE void multiply_stage(float (&sums)[kBlocks][kRegisters], uint32_t a, uint32_t b, bool is_first) {
  using Plan = FormPlan<typename Config::Form>;
  constexpr uint32_t kAStep = kMmaDepth * kElementBytes / ptx::kDescriptorUnitBytes;
  constexpr uint32_t kBStep =
      (Config::kIsBNMajor ? kSwizzleBytes : kElementBytes) * kMmaDepth / ptx::kDescriptorUnitBytes;
  constexpr uint32_t kBlockStep = kMmaRows * kSwizzleBytes / ptx::kDescriptorUnitBytes;
  const uint64_t a_first = ptx::k_major_descriptor(a);
  const uint64_t b_first =
      Config::kIsBNMajor ? ptx::n_major_descriptor(b, Plan::kBPanelBytes) : ptx::k_major_descriptor(b);
  ptx::wgmma_fence();
#pragma unroll
  for (int32_t k = 0; k < kStageDepth / kMmaDepth; ++k) {
#pragma unroll
    for (int32_t block = 0; block < kBlocks; ++block) {
      ptx::wgmma<typename Config::Element, Config::kIsBNMajor>(sums[block], a_first + block * kBlockStep + k * kAStep,
                                                               b_first + k * kBStep, !is_first || k != 0);
    }
  }
  ptx::wgmma_commit();
}

// The next work of this warpgroup; `others`: works before it that are the other one's.
template <class Role>
TILEWIRE_DEVICE bool next_own(Role& role, typename Role::Work& w, uint32_t others) {
  for (uint32_t i = 0; i < others; ++i) {
    if (!role.next(w)) return false;
  }
  return role.next(w);
}

// What notes when a tile was waited for, begun and done: nothing.
struct NoTileTrace {
  template <class Work>
  TILEWIRE_DEVICE void wait(const Work&) const {}
  TILEWIRE_DEVICE void begin() const {}
  TILEWIRE_DEVICE void end() const {}
};

// kMayGiveUp: a gate may mark tiles. `epilogue`: see store.cuh. `trace` is that of the group, for its first thread.
template <class Config, bool kMayGiveUp, class Maps, class Role, class Epilogue, class Trace>
TILEWIRE_DEVICE void compute_tiles(const SharedTiles<typename Config::Form>& shared, const Maps& maps, Role role,
                                   const Epilogue& epilogue, const Trace& trace, uint32_t group,
                                   int32_t stages_per_tile) {
  using Form = typename Config::Form;
  using Plan = FormPlan<Form>;
  const int32_t group_row = Form::kIsPingPong ? 0 : static_cast<int32_t>(group) * Plan::kGroupRows;
  PipelineConsumer<Form::kStages, Plan::kClusterCtas> pipe(shared.barriers());
  TileStore<Config, Epilogue> store(shared, group);
  const Turn<Form::kIsPingPong> turn(group);
  uint32_t others = Form::kIsPingPong ? group : 0;
  for (typename Role::Work w; next_own(role, w, others); others = Form::kIsPingPong ? 1 : 0) {
    float sums[Plan::kGroupBlocks][Form::kCols / 2];
    trace.wait(w);
    if constexpr (Form::kIsPingPong) pipe.skip(others * stages_per_tile);
    turn.wait();
    for (int32_t step = 0; step < stages_per_tile; ++step) {
      const uint32_t stage = pipe.wait();
      if (step == 0) trace.begin();
      multiply_stage<Config>(sums, shared.a(stage) + group_row * kSwizzleBytes, shared.b(stage), step == 0);
      ptx::wgmma_wait<1>();
      if (step > 0) pipe.release();
    }
    turn.pass();
    ptx::wgmma_wait<0>();
    pipe.release();
    const uint32_t mark = kMayGiveUp ? shared.mark() : 0;
    const TileOrigin at = shared.template origin<Role>(w);
    auto target = maps.target(w);
    store.begin_tile(target, at);
    store.stage_addends(epilogue, w, at.col);
    // No loop: its index must be known when registers are given out.
    [&]<int32_t... kBlock>(std::integer_sequence<int32_t, kBlock...>) {
      (store.store_block(epilogue, sums[kBlock], target, {at.row + group_row + kBlock * kMmaRows, at.col}, mark), ...);
    }
    (std::make_integer_sequence<int32_t, Plan::kGroupBlocks>{});
    store.finish_tile(target, mark);
    trace.end();
  }
  store.finish();
}

}  // namespace tilewire
