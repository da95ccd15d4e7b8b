// A rank in the simulator whose works go to any of the workers, each of which does its own in their order, as those of a
// kernel do that clusters take when they are free (device/tile/deal.cuh).
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "schedule/role.h"
#include "testing/simulation_test_support.h"

namespace tilewire {

// Role has all works if it is the only worker's.
template <class Role>
struct TakenWorks {
  using Work = typename Role::Work;
  Role all;
  const std::vector<int32_t>* takers;  // the worker of each work, in turn; again from the first on behind the last
  int32_t worker;
  size_t number = 0;

  bool next(Work& w) {
    while (all.next(w)) {
      if ((*takers)[number++ % takers->size()] == worker) return true;
    }
    return false;
  }
  Need need(const Work& w, int32_t i) const { return all.need(w, i); }
  Publish publish(const Work& w, int32_t i) const { return all.publish(w, i); }
};

// Roles: those of a schedule whose works are taken.
template <class ScheduleOfOp, class... Roles>
struct TakenSchedule : ScheduleOfOp {
  const std::vector<int32_t>* takers = nullptr;
};

template <class ScheduleOfOp, class... Roles, class Visit>
void for_each_role(const TakenSchedule<ScheduleOfOp, Roles...>& s, Cursors cursors, Visit&& visit) {
  for_each_role(static_cast<const ScheduleOfOp&>(s), cursors,
                [&]<class Role>(const AgentPlace& place, const Role& role) {
                  if constexpr ((std::is_same_v<Role, Roles> || ...)) {
                    ScheduleOfOp of_one = s;
                    of_one.workers = 1;
                    visit(place, TakenWorks<Role>{Role(of_one, 0), s.takers, place.worker});
                  } else {
                    visit(place, role);
                  }
                });
}

// Model is the op's.
template <class Model, class... Roles>
struct TakenRankModel {
  using Problem = typename Model::Problem;
  using Choice = typename Model::Choice;
  using Schedule = TakenSchedule<typename Model::Schedule, Roles...>;
  static constexpr const char* const* kFamilyNames = Model::kFamilyNames;

  struct Tables {
    typename Model::Tables tables;
    std::unique_ptr<std::vector<int32_t>> takers = std::make_unique<std::vector<int32_t>>();

    Tables(const Problem& problem, const Choice& choice, const PlanContext& context)
        : tables(problem, choice, context) {
      static Dice dice(17);
      for (int i = 0; i < 97; ++i) takers->push_back(static_cast<int32_t>(dice.below(choice.workers)));
    }
    Schedule schedule(Epoch epoch) const { return {{tables.schedule(epoch)}, takers.get()}; }
  };

  Schedule schedule;
  Model as_dealt_in_turn;
  Cursors cursors;

  TakenRankModel(const Schedule& s, const Choice& choice, const Problem& problem)
      : schedule(s), as_dealt_in_turn(s, choice, problem), cursors(choice.cursors) {}
  template <class Work>
  void touch(const Work& w, Touch& touch) const {
    as_dealt_in_turn.touch(w, touch);
  }
  int64_t tiles() const { return as_dealt_in_turn.tiles(); }
  std::vector<UserInput> user_inputs() const { return as_dealt_in_turn.user_inputs(); }
};

}  // namespace tilewire
