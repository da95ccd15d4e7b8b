// The warp that begins and ends a call: BeginRole; beside the op's roles the drain; when all CTAs of the rank have
// finished DoneRole and AwaitRole. (The drain only acquires words, so it need not wait for the other roles.)
#pragma once

#include "device/comm/call_gate.cuh"

namespace tilewire {

// The records go before their words by the release of the publish.
TILEWIRE_DEVICE void begin_call(const CallSpace& space) {
  CallWork w;
  for (BeginRole role(space.frame()); role.next(w);) {
    if (w.by_command) continue;
    *space.record(w.peer, space.frame().me) = space.view().record;
    space.publish(role.publish(w, 0));
  }
}

// By a whole warp: waits, then lets one lane publish. False: given up, the rest was left out.
template <class Role>
TILEWIRE_DEVICE bool run_waits(const CallSpace& space, CallGate& gate, Role role) {
  for (typename Role::Work w; role.next(w);) {
    if (!gate.pass(role, w)) return false;
    if (threadIdx.x % 32 != 0) continue;
    for (int32_t i = 0; i < w.publishes; ++i) space.publish(role.publish(w, i));
  }
  return true;
}

// The abort word of every rank of the node, so that nobody waits to the end for a rank that has left.
TILEWIRE_DEVICE void abort_node(const CallSpace& space) {
  const Topology& t = space.frame().topology;
  for (int32_t r = 0; r < t.ranks; ++r) {
    if (!t.same_node(space.frame().me, Rank{r})) continue;
    auto* abort_word = reinterpret_cast<uint64_t*>(space.view().arenas[r] + ControlPage::kAbort);
    ptx::store_release_sys(abort_word, 1);
  }
}

// By a whole warp. `ctas`: of this rank; each publishes its finished word, also the one this warp is of.
template <class DrainRole>
TILEWIRE_DEVICE void run_call(const CallSpace& space, const DrainRole& drain, int32_t ctas, int32_t role) {
  if (threadIdx.x % 32 == 0) begin_call(space);
  __syncwarp();
  CallGate gate(space, role);
  const bool is_over = run_waits(space, gate, drain) && gate.pass_finished(ctas) &&
                       run_waits(space, gate, DoneRole(space.frame())) &&
                       run_waits(space, gate, AwaitRole(space.frame(), false));
  if (!is_over && threadIdx.x % 32 == 0) abort_node(space);
}

}  // namespace tilewire
