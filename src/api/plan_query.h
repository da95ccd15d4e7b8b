// What plan queries of all operations do alike: the cluster that is asked about, and the answer.
#pragma once

#include <tilewire/plan_query.h>

#include <concepts>
#include <string>

#include "planning/op_simulation.h"
#include "planning/plan_parts.h"
#include "schedule/simulator/timed_run.h"
#include "schedule/topology_tables.h"

namespace tilewire {

// What a query needs of an op beside its planner (planning/op_simulation.h): how long a call takes on a clock, with a
// timeline where `keeps_trace`.
template <class Op>
concept SimulatedOp = requires(const typename Op::Problem& problem, const typename Op::Plan& plan,
                               const TopologyTables& topology, const PlanContext& context, bool keeps_trace) {
  { simulate(problem, plan.choice, topology, context, keeps_trace) } -> std::same_as<TimedReport>;
};

// The cluster of a query. Its context points into its tables.
class PlanSite {
 public:
  // Throws Error(invalid_argument) for a layout, a rank or a number of the machine that cannot be, and what making a
  // communicator of that layout in this environment would throw: Error(resource) for ranks and flag words that do not
  // fit the wire.
  explicit PlanSite(const MachineQuery& query);
  PlanSite(const PlanSite&) = delete;
  PlanSite& operator=(const PlanSite&) = delete;

  const TopologyTables& topology() const { return topology_; }
  const PlanContext& context() const { return context_; }
  const std::string& machine_text() const { return machine_text_; }  // for people

 private:
  TopologyTables topology_;
  PlanContext context_;
  std::string machine_text_;
};

// Fills in what the simulation says.
void add_simulation(PlanAnswer& answer, const TimedReport& timed);

template <class Choice>
PlanAnswer plan_answer(const PlanSite& site, const PlanOf<Choice>& plan, const TimedReport& timed) {
  PlanAnswer answer{.plan_json = to_json(plan.choice),
                    .explanation = plan.explain() + site.machine_text(),
                    .predicted_s = plan.predicted_s,
                    .compute_s = plan.compute_s,
                    .communication_s = plan.communication_s,
                    .simulated_s = 0,
                    .timeline = {}};
  add_simulation(answer, timed);
  return answer;
}

}  // namespace tilewire
