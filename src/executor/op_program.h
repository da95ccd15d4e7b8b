// From an op's list of roles (for_each_role in its schedule.h) to a program of the host executor.
#pragma once

#include "executor/call.h"
#include "schedule/call_roles.h"

namespace tilewire {

// How far the thread of an agent may wait ahead and publish behind.
constexpr Cursors thread_cursors(const AgentPlace& place) {
  Cursors cursors = place.has_cursors ? place.cursors : Cursors{};
  if (place.reads_own_writes) cursors.load_ahead = 0;
  return cursors;
}

// Adds a role; one of kDrainStage becomes the program's drain. `start(RoleContext&)` is called on the role's thread and
// gives a function object that does one piece of work and returns its trace event. All is copied.
template <class Role, class Start>
void add_role(Call::Program& program, const AgentPlace& place, const Role& role, const Start& start) {
  std::function<void(RoleContext&)> run = [place, role, start](RoleContext& context) {
    run_role(context, role, thread_cursors(place), start(context));
  };
  if (place.stage == kDrainStage) {
    program.drain = std::move(run);
  } else {
    program.roles.push_back({{.name = place.role, .worker = place.worker}, std::move(run)});
  }
}

}  // namespace tilewire
