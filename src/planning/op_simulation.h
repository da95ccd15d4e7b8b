// Calls of ops on every rank, for the simulator: to prove their protocols, also one after the other on one arena, and
// to predict their time.
//
// What an op has for it, so that the compiler names what is missing (SimulatedModel):
//   a RankModel (schedule/simulator/op_model.h) with
//     types Problem, Choice, Tables (makes schedules; keeps what they point to), Schedule
//     static constexpr const char* const* kFamilyNames    of its words, kWordFamilies of them
//     RankModel(const Schedule&, const Choice&, const Problem&)
//   Choice has `workers`, its number of compute workers
//   Tables(const Problem&, const Choice&, const PlanContext&), Schedule Tables::schedule(Epoch) const
//   check_choice(choice, problem, context) beside its Choice, which throws where the plan cannot be
// and for predictions, which only files ask for that know the model:
//   Choice::Model is the RankModel
#pragma once

#include <concepts>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "planning/plan_parts.h"
#include "schedule/simulator/op_model.h"
#include "schedule/simulator/sim_program.h"
#include "schedule/simulator/timed_run.h"
#include "schedule/topology_tables.h"

namespace tilewire {

template <class Model>
concept SimulatedModel = requires(const typename Model::Problem& problem, const typename Model::Choice& choice,
                                  const typename Model::Tables& tables, const typename Model::Schedule& schedule,
                                  const PlanContext& context, const Model& model) {
  { Model::kFamilyNames } -> std::convertible_to<const char* const*>;
  { choice.workers } -> std::convertible_to<int32_t>;
  check_choice(choice, problem, context);
  { tables.schedule(Epoch{}) } -> std::same_as<typename Model::Schedule>;
  { model.tiles() } -> std::convertible_to<int64_t>;
  { model.user_inputs() } -> std::same_as<std::vector<UserInput>>;
  requires std::constructible_from<typename Model::Tables, const typename Model::Problem&,
                                   const typename Model::Choice&, const PlanContext&>;
  requires std::constructible_from<Model, const typename Model::Schedule&, const typename Model::Choice&,
                                   const typename Model::Problem&>;
};

// A row of calls of any ops on one arena, and the tables and models that the program points into. Not thread-safe.
class OpSimulation {
 public:
  OpSimulation(TopologyTables topology, const ArenaLayout& arena, Epoch first_epoch = 2) {
    program_.topology = std::move(topology);
    program_.arena = arena;
    program_.first_epoch = first_epoch;
    program_.rings = program_.topology.view().nodes > 1 ? kRings : 0;
  }
  OpSimulation(OpSimulation&&) = default;  // what is pointed to stays where it is
  OpSimulation& operator=(OpSimulation&&) = default;
  OpSimulation(const OpSimulation&) = delete;
  OpSimulation& operator=(const OpSimulation&) = delete;

  // `choices` holds one plan for all ranks or one for each. `change`, where given, is called with each rank's schedule
  // before its roles are made: for what a plan does not say, such as an input that lies in the user area. Throws as
  // check_choice() does.
  template <SimulatedModel Model>
  void add_call(const typename Model::Problem& problem, const std::vector<typename Model::Choice>& choices,
                const Machine& machine = {}, const std::function<void(typename Model::Schedule&)>& change = {}) {
    for (int32_t r = 0; r < program_.ranks(); ++r) {
      const auto& choice = choice_of(choices, r);
      check_choice(choice, problem, context_of(r, machine, choice.workers));
    }
    add_checked_call<Model>(problem, choices, machine, change);
  }
  // The same for plans that are known to be possible.
  template <class Model>
  void add_checked_call(const typename Model::Problem& problem, const std::vector<typename Model::Choice>& choices,
                        const Machine& machine = {},
                        const std::function<void(typename Model::Schedule&)>& change = {}) {
    const auto kept = std::make_shared<CallParts<Model>>();
    kept_.push_back(kept);
    const Epoch epoch = program_.epoch(static_cast<int32_t>(program_.calls.size()));
    SimCall& call = program_.add_call();
    call.name_families(Model::kFamilyNames);
    for (int32_t r = 0; r < program_.ranks(); ++r) {
      const auto& choice = choice_of(choices, r);
      typename Model::Schedule schedule =
          kept->tables.emplace_back(problem, choice, context_of(r, machine, choice.workers)).schedule(epoch);
      if (change) change(schedule);
      add_rank(call, kept->models.emplace_back(schedule, choice, problem));
    }
  }
  // What schedules of its calls point to beside their own tables: it lives as long as this.
  void keep(std::shared_ptr<void> what) { kept_.push_back(std::move(what)); }
  int32_t ranks() const { return program_.ranks(); }
  SimProgram& program() { return program_; }
  const SimProgram& program() const { return program_; }

 private:
  template <class Model>
  struct CallParts {
    std::deque<typename Model::Tables> tables;
    std::deque<Model> models;
  };

  template <class Choice>
  static const Choice& choice_of(const std::vector<Choice>& choices, int32_t rank) {
    return choices.size() == 1 ? choices[0] : choices[static_cast<size_t>(rank)];
  }
  PlanContext context_of(int32_t rank, const Machine& machine, int32_t workers) const {
    return {.topology = program_.topology.view(),
            .me = Rank{rank},
            .arena = program_.arena,
            .machine = machine,
            .workers = workers};
  }

  SimProgram program_;
  std::vector<std::shared_ptr<void>> kept_;
};

// Predicted by walking the roles of all ranks on a clock. Ranks other than context.me are taken to have its part of the
// problem and of the plan. Plans of GPU ranks have a function of that name in their folder, as clusters have a rate of
// their own.
template <class Choice>
requires requires { typename Choice::Model; }
TimedReport simulate(const typename Choice::Problem& problem, const Choice& choice, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace) {
  static_assert(SimulatedModel<typename Choice::Model>);
  OpSimulation simulation(topology, context.arena);
  simulation.add_call<typename Choice::Model>(problem, {choice}, context.machine);
  return run_timed(simulation.program(), {.machine = context.machine, .keeps_trace = keeps_trace});
}

}  // namespace tilewire
