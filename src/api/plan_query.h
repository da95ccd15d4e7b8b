// What plan queries of all operations do alike: the cluster that is asked about, and the answer.
#pragma once

#include <tilewire/plan_query.h>

#include "executor/plan_parts.h"
#include "schedule/simulator/timed_run.h"
#include "schedule/topology_tables.h"

namespace tilewire {

// The cluster of a query. Its context points into its tables.
class PlanSite {
 public:
  // Throws Error(invalid_argument) for a layout, a rank or a number of the machine that cannot be.
  explicit PlanSite(const MachineQuery& query);
  PlanSite(const PlanSite&) = delete;
  PlanSite& operator=(const PlanSite&) = delete;

  const TopologyTables& topology() const { return topology_; }
  const PlanContext& context() const { return context_; }

 private:
  TopologyTables topology_;
  PlanContext context_;
};

// Fills in what the simulation says.
void add_simulation(PlanAnswer& answer, const TimedReport& timed);

template <class Choice>
PlanAnswer plan_answer(const PlanOf<Choice>& plan, const TimedReport& timed) {
  PlanAnswer answer{.plan_json = to_json(plan.choice),
                    .explanation = plan.explain(),
                    .predicted_s = plan.predicted_s,
                    .compute_s = plan.compute_s,
                    .communication_s = plan.communication_s,
                    .simulated_s = 0,
                    .timeline = {}};
  add_simulation(answer, timed);
  return answer;
}

}  // namespace tilewire
