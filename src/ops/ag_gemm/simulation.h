// A call of AllGather+GEMM of every rank, for the simulator: to prove its protocol, to predict its time.
#pragma once

#include <memory>
#include <vector>

#include "ops/ag_gemm/model.h"
#include "ops/ag_gemm/plan.h"
#include "schedule/simulator/sim_program.h"
#include "schedule/simulator/timed_run.h"
#include "schedule/topology_tables.h"

namespace tilewire::ag_gemm {

// A row of calls on one arena, and the tables that their models point into.
class Simulation {
 public:
  Simulation(TopologyTables topology, const ArenaLayout& arena, Epoch first_epoch = 2);

  // `choices` holds one plan for all ranks or one for each. `own_in_user[r]` (empty: none): rank r's input lies in the
  // user area. Throws as check_plan() does.
  void add_call(const Problem& problem, const std::vector<PlanChoice>& choices, const Machine& machine = {},
                const std::vector<bool>& own_in_user = {});
  SimProgram& program() { return program_; }
  const SimProgram& program() const { return program_; }

 private:
  SimProgram program_;
  std::vector<std::unique_ptr<ScheduleTables>> tables_;
};

// Predicted by walking the roles of all ranks on a clock. Ranks other than context.me are taken to have its weights.
TimedReport simulate(const Problem& problem, const PlanChoice& choice, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace);

}  // namespace tilewire::ag_gemm
