// From an op's list of roles (for_each_role in its schedule.h) to the simulator. What an op says about one rank's part
// in a call is a struct:
//
//   struct RankModel {
//     Schedule schedule;                         has `frame`; for_each_role(schedule, cursors, visit) lies beside it
//     Cursors cursors;
//     void touch(const Work&, Touch&) const;     for the Work of each role of the list; a ring that none of them fills
//                                                is ended here
//     int64_t tiles() const;                     how many the rank makes
//     std::vector<UserInput> user_inputs() const;   what of the user area is sent from where it lies
//   };
//
// It computes no schedule: it says which memory a piece of work reads and writes, and what it costs. A Work that has a
// `command` gives it to the proxy instead of publishing; with a `by_command` too, only where that is set.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "schedule/simulator/call_model.h"
#include "schedule/simulator/sim_program.h"

namespace tilewire {

// The model of any role of the list. `rank` must outlive the program.
template <class RankModel, class R>
struct OpRoleModel {
  using Role = R;
  using Work = typename R::Work;
  R role;
  const RankModel* rank = nullptr;

  Role start() const { return role; }
  void touch(const Work& w, Touch& touch) const {
    if constexpr (!std::is_same_v<R, EndRole>) rank->touch(w, touch);
  }
  // A role that gives commands only, or one that says of each piece of work whether it does.
  const Command* command(const Work& w) const requires requires { w.command; }
  {
    if constexpr (requires { w.by_command; }) return w.by_command ? &w.command : nullptr;
    return &w.command;
  }
};

// Adds the agents of one rank to a call; `rank` must outlive it.
template <class RankModel>
void add_rank(SimCall& call, const RankModel& rank) {
  const CallFrame& frame = rank.schedule.frame;
  const std::vector<UserInput> inputs = rank.user_inputs();
  add_call_roles(call, frame, frame.has_network() ? static_cast<int32_t>(Ring::call) : -1, !inputs.empty());
  for_each_agent(rank.schedule, rank.cursors, [&]<class Role>(const AgentPlace& place, const Role& role) {
    call.add(frame.me, place, OpRoleModel<RankModel, Role>{role, &rank});
  });
  call.set_tiles(frame.me, rank.tiles());
  for (const UserInput& input : inputs) call.add_user_input(input);
}

}  // namespace tilewire
