// Notes of one thread: wait() before it waits for what its work needs, begin() when that is there, end() when the work is
// done; all only where is_on(). The next number lies in memory, so that a thread which notes nothing holds nothing for
// it, and one that does holds nothing during the work.
#pragma once

#include "device/ptx/control.cuh"
#include "device/sync/trace_note.h"

namespace tilewire {

class TraceLane {
 public:
  TILEWIRE_DEVICE TraceLane(const TraceView& view, TracePlace place) : view_(view), place_(place) {}

  TILEWIRE_DEVICE bool is_on() const { return view_.notes != nullptr; }
  // Times and op of `note` count for nothing.
  TILEWIRE_DEVICE void wait(TraceNote note) const {
    if (!has_room()) return;
    note.t_wait_ns = ptx::global_timer_ns();
    note.op = view_.op;
    next() = note;
  }
  TILEWIRE_DEVICE void begin() const {
    if (has_room()) next().t_begin_ns = ptx::global_timer_ns();
  }
  TILEWIRE_DEVICE void end() const {
    if (has_room()) next().t_end_ns = ptx::global_timer_ns();
    ++view_.counts[lane()];
  }

 private:
  TILEWIRE_DEVICE uint32_t lane() const { return blockIdx.x * kTracePlaces + static_cast<uint32_t>(place_); }
  TILEWIRE_DEVICE bool has_room() const { return view_.counts[lane()] < view_.capacity; }
  TILEWIRE_DEVICE TraceNote& next() const {
    return view_.notes[static_cast<uint64_t>(lane()) * view_.capacity + view_.counts[lane()]];
  }

  const TraceView& view_;
  TracePlace place_;
};

}  // namespace tilewire
