// The warp that begins and ends a call: BeginRole; beside the op's roles the drain; when all CTAs of the rank have
// finished DoneRole and AwaitRole. (The drain only acquires words, so it need not wait for the other roles.)
#pragma once

#include "device/comm/call_gate.cuh"
#include "device/comm/relay_warp.cuh"
#include "device/comm/ring_ends.cuh"

namespace tilewire {

// A warp that waits for most of a call shares its SM with warps that compute.
constexpr uint32_t kRankPauseNs = 250;

// Runs a role whose work is to publish, or to hand a command to the proxy: `post(w)` by one lane. By a whole warp.
// False: given up, the rest was left out.
template <class Role, class Post>
TILEWIRE_DEVICE bool run_signals(const CallSpace& space, CallGate& gate, Role role, const Post& post) {
  bool is_ordered = false;
  for (typename Role::Work w; role.next(w);) {
    // One fence is for the words of all works that wait for nothing between them.
    is_ordered = is_ordered && w.needs == 0;
    if (!gate.pass(role, w)) return false;
    if (threadIdx.x % 32 != 0) continue;
    if (w.publishes > 0 && !is_ordered) order_publishes();
    is_ordered = is_ordered || w.publishes > 0;
    for (int32_t i = 0; i < w.publishes; ++i) space.publish_behind(role.publish(w, i));
    post(w);
  }
  return true;
}

constexpr uint32_t kCommandBatch = 8;

// Runs a role whose works are commands for the proxy: the next one when it can be posted, and with it those behind it
// that can be, too, a lane each. (What makes a command visible to the proxy takes microseconds, for one or for several.)
// By a whole warp. `note(w)` by one lane after the other before that, where the call is traced. False: given
// up, the rest was left out.
template <class Role, class Note>
TILEWIRE_DEVICE bool run_commands(const CallSpace& space, CallGate& gate, CommandPoster& ring, Role role,
                                  const Note& note) {
  const uint32_t lane = threadIdx.x % 32;
  typename Role::Work w;
  bool has_work = lane < kCommandBatch;
  for (uint32_t steps = lane + 1;;) {
    for (; has_work && steps > 0; --steps) has_work = role.next(w);
    if (!__any_sync(0xffffffff, has_work)) return true;
    const bool can_post = has_work && (lane == 0 || gate.is_open(role, w));
    if (can_post) gate.pass_alone(role, w);
    if (!all_here(gate.waiter())) return false;
    const uint32_t missing = ~__ballot_sync(0xffffffff, can_post);
    const auto count = static_cast<uint32_t>(__ffs(static_cast<int32_t>(missing)) - 1);
    for (uint32_t i = 0; space.view().trace.notes != nullptr && i < count; ++i) {
      if (lane == i) note(w);
      __syncwarp();
    }
    if (!ring.post_of_lanes(gate.waiter(), count, w.command)) return false;
    steps = count;
  }
}

// The abort word of every rank of the node, so that nobody waits to the end for a rank that has left. The other nodes
// hear of it from the host, which finds the fault record.
TILEWIRE_DEVICE void abort_node(const CallSpace& space) {
  const Topology& t = space.frame().topology;
  for (int32_t r = 0; r < t.ranks; ++r) {
    if (t.same_node(space.frame().me, Rank{r})) ptx::store_release_sys(space.abort_word(Rank{r}), 1);
  }
}

// The records of this rank, its own one first: that is what goes over the network. They go before their words by the
// release of the publish.
TILEWIRE_DEVICE void write_records(const CallSpace& space) {
  const Topology& t = space.frame().topology;
  const Rank me = space.frame().me;
  *space.record(me, me) = space.own_record();
  for (int32_t r = 0; r < t.ranks; ++r) {
    if (t.same_node(me, Rank{r})) *space.record(Rank{r}, me) = space.own_record();
  }
}

// The epoch moves on when all CTAs of the rank have read it. A rank that has given up stays claimed: its communicator
// is dead.
TILEWIRE_DEVICE void claim_rank(const CallSpace& space, CallGate& gate) {
  auto* busy = reinterpret_cast<unsigned long long*>(&space.view().state->busy);
  if (atomicExch(busy, 1ull) != 0) gate.waiter().give_up(KernelFaultKind::busy, 0, 0, 1);
}
TILEWIRE_DEVICE void release_rank(const CallSpace& space) {
  space.view().state->epoch = space.epoch();
  space.view().state->busy = 0;
}

// The ends of the rings that no role of the op's list fills (schedule/role_list.h). By a whole warp. False: given up.
template <class Roles, int32_t kRing = 0>
TILEWIRE_DEVICE bool end_other_rings(const CallSpace& space, CallGate& gate) {
  if constexpr (kRing == kRings) {
    return true;
  } else {
    if constexpr (!Roles::fills(kRing)) {
      CommandPoster ring(space, Ring{kRing});
      const auto post = [&](const CallWork& w) { ring.post(gate.waiter(), w.command); };
      if (!run_signals(space, gate, EndRole(space.frame()), post)) return false;
    }
    return end_other_rings<Roles, kRing + 1>(space, gate);
  }
}

// By a whole warp. Roles: the op's list. `ctas`: of this rank; each publishes its finished word, also the one this warp is of. `also_sent`:
// see AwaitRole.
template <class Roles, class DrainRole>
TILEWIRE_DEVICE void run_call(const CallSpace& space, const DrainRole& drain, int32_t ctas, bool also_sent,
                              int32_t role) {
  const bool is_leader = threadIdx.x % 32 == 0;
  CallGate gate(space, role, kRankPauseNs);
  static_assert(Roles::ring(Roles::number("call")) == Ring::call);
  CommandPoster ring(space, Ring::call);
  const auto post = [&](const CallWork& w) {
    if (w.by_command) ring.post(gate.waiter(), w.command);
  };
  if (is_leader) {
    claim_rank(space, gate);
    write_records(space);
  }
  __syncwarp();
  DoneRole done(space.frame());
  // What done needs is looked at beside the tiles: some of it lies in host memory.
  const auto has_all_of_done = [&] {
    CallWork first;
    return !done.next(first) || gate.pass(done, first);
  };
  const bool is_over = run_signals(space, gate, BeginRole(space.frame()), post) &&
                       run_signals(space, gate, drain, [](const auto&) {}) && has_all_of_done() &&
                       gate.pass_finished(ctas) && run_signals(space, gate, done, post) &&
                       end_other_rings<Roles>(space, gate) &&
                       run_signals(space, gate, AwaitRole(space.frame(), also_sent), [](const CallWork&) {});
  if (!is_leader) return;
  if (is_over) {
    release_rank(space);
  } else {
    abort_node(space);
  }
}

}  // namespace tilewire
