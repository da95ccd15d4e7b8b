#include "ops/ag_gemm/simulation.h"

namespace tilewire::ag_gemm {

Simulation::Simulation(TopologyTables topology, const ArenaLayout& arena, Epoch first_epoch) {
  program_.topology = std::move(topology);
  program_.arena = arena;
  program_.first_epoch = first_epoch;
  program_.family_names[kShardArrived] = kFamilyNames[kShardArrived];
  program_.rings = program_.topology.view().nodes > 1 ? kRings : 0;
}

void Simulation::add_call(const Problem& problem, const std::vector<PlanChoice>& choices, const Machine& machine,
                          const std::vector<bool>& own_in_user) {
  const Epoch epoch = program_.epoch(static_cast<int32_t>(program_.calls.size()));
  SimCall& call = program_.add_call();
  for (int32_t r = 0; r < program_.ranks(); ++r) {
    const PlanChoice& choice = choices.size() == 1 ? choices[0] : choices[r];
    const PlanContext context{.topology = program_.topology.view(),
                              .me = Rank{r},
                              .arena = program_.arena,
                              .machine = machine,
                              .workers = choice.workers};
    check_plan(choice, problem, context);
    tables_.push_back(std::make_unique<ScheduleTables>(problem, choice, context));
    Schedule schedule = tables_.back()->schedule(epoch);
    schedule.own_in_user = !own_in_user.empty() && own_in_user[r];
    add_rank(call, schedule, choice.cursors, problem.k);
  }
}

TimedReport simulate(const Problem& problem, const PlanChoice& choice, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace) {
  Simulation simulation(topology, context.arena);
  simulation.add_call(problem, {choice}, context.machine);
  return run_timed(simulation.program(), {.machine = context.machine, .keeps_trace = keeps_trace});
}

}  // namespace tilewire::ag_gemm
