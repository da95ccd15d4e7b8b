// What the roles of a kernel share about the call they belong to: where the arenas lie, how long waits last, which
// record this rank brings. A kernel parameter, or part of one.
#pragma once

#include "device/sync/wait.cuh"
#include "schedule/call_roles.h"
#include "schedule/wire.h"

#include <cstddef>

namespace tilewire {

struct CallView {
  std::byte* const* arenas = nullptr;  // [ranks], in device memory; null for ranks that a kernel does not reach
  WaitLimits limits;                   // the abort word is that of the own arena
  CallRecord record;                   // equal on all ranks, or the call is a mismatch
  // [CTAs] words in device memory of this rank alone: a CTA has finished its part of call e. Single writers, never
  // reset, as all words.
  uint64_t* finished = nullptr;
};

// Numbers of the `finished` words in fault records, above those of all flags.
constexpr uint64_t kFinishedWord = uint64_t{1} << 32;

// A frame and a view together: all addresses that roles use. Holds references to kernel parameters.
class CallSpace {
 public:
  TILEWIRE_DEVICE CallSpace(const CallFrame& frame, const CallView& view) : frame_(frame), view_(view) {}

  TILEWIRE_DEVICE const CallFrame& frame() const { return frame_; }
  TILEWIRE_DEVICE const CallView& view() const { return view_; }
  TILEWIRE_DEVICE std::byte* half(Rank r) const {
    return view_.arenas[r.value] + frame_.arena.half_offset(frame_.epoch);
  }
  TILEWIRE_DEVICE uint64_t* word(Rank r, uint32_t word) const {
    return reinterpret_cast<uint64_t*>(view_.arenas[r.value] + frame_.arena.word_offset(word));
  }
  TILEWIRE_DEVICE CallRecord* record(Rank where, Rank of) const {
    return reinterpret_cast<CallRecord*>(half(where) + ArenaLayout::record_offset(of));
  }
  // See publish() of sync/wait.cuh.
  TILEWIRE_DEVICE void publish(const Publish& p) const { tilewire::publish(word(p.to, p.word), frame_.epoch); }
  TILEWIRE_DEVICE void publish_finished() const { tilewire::publish(view_.finished + blockIdx.x, frame_.epoch); }

 private:
  const CallFrame& frame_;
  const CallView& view_;
};

}  // namespace tilewire
