// From an op's list of roles (for_each_role in its schedule.h) to a program of the host executor.
#pragma once

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

#include "arithmetic/host_gemm.h"
#include "executor/call.h"
#include "schedule/call_roles.h"
#include "schedule/chunk_map.h"
#include "schedule/trace_event.h"

namespace tilewire {

// How far the thread of an agent may wait ahead and publish behind.
constexpr Cursors thread_cursors(const AgentPlace& place) {
  Cursors cursors = place.has_cursors ? place.cursors : Cursors{};
  if (place.reads_own_writes) cursors.load_ahead = 0;
  cursors.load_ahead = std::min(cursors.load_ahead, place.most_load_ahead);
  return cursors;
}

// Adds a role; one of kDrainStage becomes the program's drain, and Error(internal) when it has one.
// `start(RoleContext&)` is called on the role's thread and gives a function object that does one piece of work and
// returns its trace event. All is copied.
template <class Role, class Start>
void add_role(Call::Program& program, const AgentPlace& place, const Role& role, const Start& start) {
  std::function<void(RoleContext&)> run = [place, role, start](RoleContext& context) {
    run_role(context, role, thread_cursors(place), start(context));
  };
  if (place.stage == kDrainStage) {
    if (program.drain) {
      throw Error(ErrorKind::internal,
                  {.what = "a program has two drain roles", .values = fmt::format("the second one is {}", place.role)});
    }
    program.drain = std::move(run);
  } else {
    program.roles.push_back({{.name = place.role, .worker = place.worker}, std::move(run)});
  }
}

// Of an EndRole.
struct EndHands {
  RoleContext* context;
  Ring ring;
  TraceEvent operator()(const CallWork& w) const {
    context->post(ring, w.command);
    return {.name = "call end"};
  }
};

// All roles that for_each_role(schedule, cursors, visit) beside the op's Schedule lists, and the ends of the rings that
// none of them fills. `start(RoleContext&, Ring)` as in add_role; the ring is that of a role that has one. Schedule and
// all that `start` points to live until the call is over.
template <class Schedule, class Start>
Call::Program make_program(const Schedule& schedule, Cursors cursors, const char* const (&family_names)[kWordFamilies],
                           const Start& start) {
  Call::Program program;
  std::copy(std::begin(family_names), std::end(family_names), program.family_names);
  for_each_agent(schedule, cursors, [&]<class Role>(const AgentPlace& place, const Role& role) {
    const Ring ring{place.ring};
    if constexpr (std::is_same_v<Role, EndRole>) {
      add_role(program, place, role, [ring](RoleContext& context) { return EndHands{&context, ring}; });
    } else {
      add_role(program, place, role, [start, ring](RoleContext& context) { return start(context, ring); });
    }
  });
  return program;
}

// The event of a chunk that was moved.
inline TraceEvent chunk_event(ChunkRef chunk, int64_t bytes, TraceLink link) {
  return {.name = "chunk", .work = chunk.chunk.value, .source = chunk.source.value, .bytes = bytes, .link = link};
}

// For the function object of an op's roles: what those of most ops need.
class RoleHands {
 public:
  RoleHands(RoleContext& context, Ring ring) : context_(&context), ring_(ring) {}

  RoleContext& context() { return *context_; }
  // Into the ring of the role.
  void give(const Command& command) { context_->post(ring_, command); }
  TraceEvent give_end(const Command& end) {
    give(end);
    return {.name = "call end"};
  }
  // Made when it is first asked for.
  HostGemmScratch& scratch() {
    if (!scratch_) scratch_.emplace(context_->session().gemm_variant());
    return *scratch_;
  }

 private:
  RoleContext* context_;
  Ring ring_;
  std::optional<HostGemmScratch> scratch_;
};

}  // namespace tilewire
