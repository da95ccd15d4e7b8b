// What the CTAs of every fused kernel do around their tiles: the notes of a tile, the warp that hands commands to the
// proxy, and the word by which a CTA says that it has finished its part of a call.
#pragma once

#include "device/comm/call_warp.cuh"
#include "device/ptx/mbarrier.cuh"
#include "device/tile/tile_form.h"

namespace tilewire {

constexpr uint32_t kTilePauseNs = 30;  // of the gate of tiles, see Waiter

// Notes the tiles of a computing group, by its first thread. Of a work it looks at the number, `tile`.
class TileTrace {
 public:
  TILEWIRE_DEVICE TileTrace(const CallSpace& space, uint32_t group, int32_t role)
      : lane_(space.trace(group == 0 ? TracePlace::first_group : TracePlace::second_group)), role_(role) {}

  template <class Work>
  TILEWIRE_DEVICE void wait(const Work& w) const {
    if (is_leader()) lane_.wait({.work = w.tile, .role = static_cast<uint8_t>(role_)});
  }
  TILEWIRE_DEVICE void begin() const {
    if (is_leader()) lane_.begin();
  }
  TILEWIRE_DEVICE void end() const {
    if (is_leader()) lane_.end();
  }

 private:
  TILEWIRE_DEVICE bool is_leader() const { return lane_.is_on() && threadIdx.x % kWarpgroupThreads == 0; }

  TraceLane lane_;
  int32_t role_;
};

// A role that fills a ring, by its number in the op's list, by a whole warp. `note_of(w)`: what the trace says of data that w moves. Behind a kernel that has given
// up nothing is sent: the epoch is still the same, and the proxy may have had all of it.
template <class Roles, int32_t kNumber, class Role, class NoteOf>
TILEWIRE_DEVICE void run_send(const CallSpace& space, const Role& role, const NoteOf& note_of) {
  if (space.is_aborted()) return;
  CallGate gate(space, kNumber, kRankPauseNs);
  CommandPoster ring(space, Roles::ring(kNumber));
  run_commands(space, gate, ring, role, [&](const typename Role::Work& w) {
    if (w.command.kind != CommandKind::write) return;
    const TraceLane trace = space.trace(TracePlace::send);
    trace.wait(note_of(w));
    trace.begin();
    trace.end();
  });
}

// Collects the warps of a computing CTA that have finished their part of the call: those that compute, and two others.
// Shared memory; whole warps call it.
class CtaFinish {
 public:
  static constexpr int32_t kSharedBytes = 8;

  TILEWIRE_DEVICE explicit CtaFinish(uint32_t address) : barrier_(address) {}

  // By one thread, before a barrier of all. `groups`: that compute.
  TILEWIRE_DEVICE void init(int32_t groups = kComputeGroups) const {
    ptx::mbarrier_init(barrier_, groups * kWarpgroupThreads / 32 + 2);
  }
  TILEWIRE_DEVICE void arrive() const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier_);
  }
  // By another one, when all have.
  TILEWIRE_DEVICE void publish(const CallSpace& space) const {
    while (!ptx::mbarrier_try_wait(barrier_, 0)) {
    }
    if (threadIdx.x % 32 == 0) space.publish_finished();
  }

 private:
  uint32_t barrier_;
};

// Warp 3 of the first kRankWarps CTAs, where it speaks for the rank: call, send and relay. The call ends behind all that
// finishes, so it is none of that; nor is the relay, which ends behind the call. `send()`: the send role; what comes behind
// it: see run_call().
template <class Roles, class Send, class DrainRole>
TILEWIRE_DEVICE void run_rank_warp(const CallSpace& space, const CtaFinish& finish, const Send& send,
                                   const DrainRole& drain, bool also_sent, int32_t call_role) {
  if (blockIdx.x == 1) send();
  finish.arrive();
  if (blockIdx.x == 0) run_call<Roles>(space, drain, static_cast<int32_t>(gridDim.x), also_sent, call_role);
  if (blockIdx.x == 2) run_relay(space);
}

}  // namespace tilewire
