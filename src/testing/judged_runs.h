// For tests that an op's planner and the simulator do not contradict each other: one problem on one cluster, priced by
// both. Model is as in op_simulation.h.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "planning/op_simulation.h"
#include "schedule/simulator/link_use.h"
#include "testing/simulation_test_support.h"

namespace tilewire {

// A cluster and a problem, seen from rank 0.
template <SimulatedModel Model>
class Judged {
 public:
  using Problem = typename Model::Problem;
  using Choice = typename Model::Choice;
  using Plan = PlanOf<Choice>;

  Judged(const Layout& layout, Problem problem, const Machine& machine, int32_t workers)
      : layout_(layout),
        topology_(TopologyTables::from_layout(layout)),
        problem_(std::move(problem)),
        machine_(machine),
        arena_(small_arena(ranks_of(layout))),
        workers_(workers) {
    arena_.half_stride_bytes = int64_t{1} << 30;
  }

  Plan plan() const { return make_plan(problem_, context()); }
  Plan plan(const Choice& choice) const { return check_plan(choice, problem_, context()); }
  double simulated_s(const Choice& choice) const {
    return simulate(problem_, choice, topology_, context(), false).seconds;
  }
  double link_s(const Choice& choice) const {
    OpSimulation simulation(topology_, arena_);
    simulation.add_call<Model>(problem_, {choice}, machine_);
    return busiest_link_s(simulation.program(), machine_);
  }

  // Candidates of rank 0's own part, with all its workers: plan and simulation agree within `bound`, and neither is
  // below what the busiest link or the arithmetic takes.
  void expect_agreement(double bound) const {
    int judged = 0;
    for (const auto& candidate : plan().candidates) {
      const bool is_own_part = candidate.verdict == "chosen" || candidate.verdict.rfind("predicted", 0) == 0;
      if (!is_own_part || candidate.choice.workers != workers_) continue;
      expect_agreement(candidate.choice, bound);
      ++judged;
    }
    EXPECT_GT(judged, 0) << problem_.text();
  }

  // The same for one plan.
  void expect_agreement(const Choice& choice, double bound) const {
    const Plan planned = plan(choice);
    const double seconds = simulated_s(choice), on_link_s = link_s(choice);
    SCOPED_TRACE(testing::PrintToString(layout_) + " " + problem_.text() + "\n" + planned.explain());
    EXPECT_GE(seconds, planned.compute_s);
    EXPECT_GE(seconds, on_link_s);
    EXPECT_GE(planned.communication_s, on_link_s * (1 - 1e-9));
    EXPECT_GE(planned.predicted_s, std::max(planned.compute_s, planned.communication_s));
    EXPECT_NEAR(planned.predicted_s / seconds, 1, bound);
  }

 private:
  PlanContext context() const {
    return {.topology = topology_.view(), .me = Rank{0}, .arena = arena_, .machine = machine_, .workers = workers_};
  }
  Layout layout_;
  TopologyTables topology_;
  Problem problem_;
  Machine machine_;
  ArenaLayout arena_;
  int32_t workers_ = 1;
};

}  // namespace tilewire
