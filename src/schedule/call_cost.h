// What the beginning and the end of a call cost, whatever the op: the roles of call_roles.h by the cost model.
#pragma once

#include <algorithm>
#include <cstdint>

#include "schedule/call_roles.h"
#include "schedule/machine.h"

namespace tilewire {

struct MemberCount {
  int32_t local = 0;   // members of a rank's done set on its own node
  int32_t remote = 0;  // and on others
};

constexpr MemberCount count_members(const CallFrame& frame) {
  MemberCount count;
  MemberCursor members;
  for (Rank p; members.next(frame, p);) ++(frame.is_remote(p) ? count.remote : count.local);
  return count;
}

// From a signal to its waiter, the slowest of the members'; remote ones pass two proxies, one after the other.
constexpr double member_signal_s(const MemberCount& members, const Machine& m) {
  if (members.remote == 0) return members.local == 0 ? 0 : m.node_latency_s;
  return m.network_latency_s + (members.remote + 1) * m.command_s;
}

// When the rank's records are with all members, from the start of the call on. Theirs are here about then.
constexpr double begin_cost_s(const CallFrame& frame, const Machine& m) {
  const MemberCount members = count_members(frame);
  return (1 + members.local + members.remote) * m.step_s + member_signal_s(members, m);
}

// From the end of the op's drain role to the end of the call.
constexpr double end_cost_s(const CallFrame& frame, const Machine& m) {
  const MemberCount members = count_members(frame);
  const int32_t all = members.local + members.remote;
  const int32_t says_done = 1 + all + (frame.has_network() ? 1 : 0), awaits = all;
  return (says_done + awaits) * m.step_s + member_signal_s(members, m);
}

}  // namespace tilewire
