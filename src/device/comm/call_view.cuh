// What the roles of a kernel share about the call they belong to: where the arenas lie, how long waits last, which
// record this rank brings. A kernel parameter, or part of one.
#pragma once

#include "device/comm/device_rank.h"
#include "device/sync/trace_lane.cuh"
#include "device/sync/wait.cuh"
#include "schedule/call_roles.h"
#include "schedule/wire.h"

#include <cstddef>

namespace tilewire {

struct CallView {
  std::byte* const* arenas = nullptr;  // [ranks], in device memory; see DeviceRank for this and what follows
  DeviceRankState* state = nullptr;
  std::byte* control_page = nullptr;
  RingMemory rings[kRings] = {};
  RingMemory arrivals = {};
  WaitLimits limits;         // the abort word is that of the own arena
  uint64_t agreed_hash = 0;  // equal on all ranks, or the call is a mismatch
  // [CTAs] words in device memory of this rank alone: a CTA has finished its part of call e. Single writers, never
  // reset, as all words.
  uint64_t* finished = nullptr;
  TraceView trace = {};
};

// A frame and a view together, in the call that the rank's state says is next: all addresses that roles use. Holds
// references to kernel parameters; the epoch of the frame counts for nothing.
class CallSpace {
 public:
  TILEWIRE_DEVICE CallSpace(const CallFrame& frame, const CallView& view)
      : frame_(frame), view_(view), epoch_(view.state->epoch + 1) {}

  TILEWIRE_DEVICE const CallFrame& frame() const { return frame_; }
  TILEWIRE_DEVICE const CallView& view() const { return view_; }
  TILEWIRE_DEVICE Epoch epoch() const { return epoch_; }
  // On GPUs a rank's calls are told apart by their epochs: replays make none that the host could count.
  TILEWIRE_DEVICE CallRecord own_record() const { return {view_.agreed_hash, epoch_}; }
  TILEWIRE_DEVICE std::byte* half(Rank r) const { return view_.arenas[r.value] + frame_.arena.half_offset(epoch_); }
  TILEWIRE_DEVICE uint64_t* word(Rank r, uint32_t word) const {
    std::byte* base = word == FlagLayout::sent() ? view_.control_page : view_.arenas[r.value];
    return reinterpret_cast<uint64_t*>(base + frame_.arena.word_offset(word));
  }
  TILEWIRE_DEVICE CallRecord* record(Rank where, Rank of) const {
    return reinterpret_cast<CallRecord*>(half(where) + ArenaLayout::record_offset(of));
  }
  TILEWIRE_DEVICE uint64_t* abort_word(Rank r) const {
    return reinterpret_cast<uint64_t*>(view_.arenas[r.value] + ControlPage::kAbort);
  }
  // By a whole warp.
  TILEWIRE_DEVICE bool is_aborted() const {
    return __any_sync(0xffffffff, ptx::load_relaxed_sys(view_.limits.abort_word) != 0) != 0;
  }
  // See publish() of sync/wait.cuh.
  TILEWIRE_DEVICE void publish(const Publish& p) const { tilewire::publish(word(p.to, p.word), epoch_); }
  // All words of a work by one fence.
  template <class Role>
  TILEWIRE_DEVICE void publish_all(const Role& role, const typename Role::Work& w) const {
    if (w.publishes == 0) return;
    order_publishes();
    for (int32_t i = 0; i < w.publishes; ++i) publish_behind(role.publish(w, i));
  }
  // Behind order_publishes().
  TILEWIRE_DEVICE void publish_behind(const Publish& p) const { tilewire::publish_behind(word(p.to, p.word), epoch_); }
  TILEWIRE_DEVICE TraceLane trace(TracePlace place) const { return {view_.trace, place}; }
  // Nobody but the call warp of the same GPU looks at it.
  TILEWIRE_DEVICE void publish_finished() const { publish_in_gpu(view_.finished + blockIdx.x, epoch_); }

 private:
  const CallFrame& frame_;
  const CallView& view_;
  Epoch epoch_;
};

}  // namespace tilewire
