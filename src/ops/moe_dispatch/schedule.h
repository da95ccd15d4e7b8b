// The roles of MoE dispatch: one iterator a role, pure integer logic for the host executor, the kernel and the simulator.
// What they move is said by tables that are made during the call, so each begins by waiting for these.
//
// The relay role (arrivals that the proxy announces) is the same for all ops: schedule/relay_role.h.
#pragma once

#include <cstdint>

#include "ops/moe_dispatch/compute_roles.h"
#include "ops/moe_dispatch/count_roles.h"
#include "ops/moe_dispatch/dispatch_roles.h"
#include "ops/moe_dispatch/roles.h"
#include "schedule/call_roles.h"

namespace tilewire::moe_dispatch {

// The agents of a rank beside those of every call: visit(place, iterator) for each role of the list in roles.h and each of
// its workers. The host executor, a kernel's tests and the simulator take stages and cursors from here.
//
// Whoever waits ahead waits for words that its own work leads to, so none does: how many rounds there are is not known
// where cursors are set.
template <class Visit>
TILEWIRE_HD constexpr void for_each_role(const Schedule& s, Cursors cursors, Visit&& visit) {
  AgentPlace count = Roles::place("count");
  count.reads_own_writes = true;
  visit(count, CountRole(s));
  visit(Roles::place("route"), RouteRole(s));
  if (s.frame.has_network()) {
    visit(Roles::place("send").with(cursors, 0), SendRole(s));
    visit(Roles::place("forward").with(cursors, 0), ForwardRole(s));
  }
  if (!s.counts_only) {
    visit(Roles::place("push").with(cursors, 0), PushRole(s));
    if (s.frame.has_network()) visit(Roles::place("pack").with(cursors, 0), PackRole(s));
    for (int32_t worker = 0; worker < s.workers; ++worker) {
      visit(Roles::place("compute").at(worker).with(cursors, 0), ComputeRole(s, worker));
    }
    visit(Roles::place("release").with(cursors, 0), ReleaseRole(s));
  }
  visit(Roles::place("drain").in_stage(kDrainStage), DrainRole(s));
}

}  // namespace tilewire::moe_dispatch
