// What the roles that copy chunks share, whatever the op: the gate of one thread that loads and stores, and what is noted
// of a chunk.
#pragma once

#include "device/comm/call_gate.cuh"
#include "schedule/chunk_map.h"

namespace tilewire {

constexpr uint32_t kCopyPauseNs = 60;

// What the trace says of a chunk that moved.
TILEWIRE_DEVICE TraceNote chunk_note(ChunkRef chunk, int64_t bytes, int32_t role, TraceLink link) {
  return {.work = chunk.chunk.value,
          .source = chunk.source.value,
          .bytes = static_cast<uint32_t>(bytes),
          .role = static_cast<uint8_t>(role),
          .link = link};
}

// pass() before a piece of work is begun, may_publish() when it is done.
class SoloGate {
 public:
  static constexpr bool kEndsWork = true;

  TILEWIRE_DEVICE SoloGate(const CallSpace& space, int32_t role) : gate_(space, role, kCopyPauseNs), role_(role) {}

  template <class Role>
  TILEWIRE_DEVICE void pass(const Role& role, const typename Role::Work& w) {
    if (w.needs == 0) return;
    gate_.pass_for_copies(role, w);
  }
  TILEWIRE_DEVICE bool may_publish() { return !gate_.waiter().has_given_up(); }
  TILEWIRE_DEVICE int32_t role() const { return role_; }

 private:
  CallGate gate_;
  int32_t role_;
};

}  // namespace tilewire
