// Calls of an op on every rank, for the simulator: to prove its protocol, to predict its time.
//
// Model is an op's RankModel (schedule/simulator/op_model.h) with
//   types Problem, Choice, Tables (makes schedules; keeps what they point to), Schedule
//   static constexpr const char* const* kFamilyNames    of its words, kWordFamilies of them
//   Model(const Schedule&, const Choice&, const Problem&)
// and check_plan(choice, problem, context) beside its Choice.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "executor/plan_parts.h"
#include "schedule/simulator/op_model.h"
#include "schedule/simulator/sim_program.h"
#include "schedule/simulator/timed_run.h"
#include "schedule/topology_tables.h"

namespace tilewire {

// A row of calls on one arena, and the tables and models that the program points into. Not thread-safe.
template <class Model>
class OpSimulation {
 public:
  using Problem = typename Model::Problem;
  using Choice = typename Model::Choice;
  using Schedule = typename Model::Schedule;

  OpSimulation(TopologyTables topology, const ArenaLayout& arena, Epoch first_epoch = 2) {
    program_.topology = std::move(topology);
    program_.arena = arena;
    program_.first_epoch = first_epoch;
    for (int32_t f = 0; f < kWordFamilies; ++f) program_.family_names[f] = Model::kFamilyNames[f];
    program_.rings = program_.topology.view().nodes > 1 ? kRings : 0;
  }
  OpSimulation(OpSimulation&&) = default;  // what is pointed to stays where it is
  OpSimulation(const OpSimulation&) = delete;
  OpSimulation& operator=(const OpSimulation&) = delete;

  // `choices` holds one plan for all ranks or one for each. `change`, where given, is called with each rank's schedule
  // before its roles are made: for what a plan does not say, such as an input that lies in the user area. Throws as
  // check_plan() does.
  void add_call(const Problem& problem, const std::vector<Choice>& choices, const Machine& machine = {},
                const std::function<void(Schedule&)>& change = {}) {
    const Epoch epoch = program_.epoch(static_cast<int32_t>(program_.calls.size()));
    SimCall& call = program_.add_call();
    for (int32_t r = 0; r < program_.ranks(); ++r) {
      const Choice& choice = choices.size() == 1 ? choices[0] : choices[static_cast<size_t>(r)];
      const PlanContext context{.topology = program_.topology.view(),
                                .me = Rank{r},
                                .arena = program_.arena,
                                .machine = machine,
                                .workers = choice.workers};
      check_plan(choice, problem, context);
      Schedule schedule = tables_.emplace_back(problem, choice, context).schedule(epoch);
      if (change) change(schedule);
      add_rank(call, models_.emplace_back(schedule, choice, problem));
    }
  }
  SimProgram& program() { return program_; }
  const SimProgram& program() const { return program_; }

 private:
  SimProgram program_;
  std::deque<typename Model::Tables> tables_;
  std::deque<Model> models_;
};

// Predicted by walking the roles of all ranks on a clock. Ranks other than context.me are taken to have its problem.
template <class Model>
TimedReport simulate_op(const typename Model::Problem& problem, const typename Model::Choice& choice,
                        const TopologyTables& topology, const PlanContext& context, bool keeps_trace) {
  OpSimulation<Model> simulation(topology, context.arena);
  simulation.add_call(problem, {choice}, context.machine);
  return run_timed(simulation.program(), {.machine = context.machine, .keeps_trace = keeps_trace});
}

}  // namespace tilewire
