// The members of an op's description (op_description.h) that are the same text for all ops, as a base of the op's
// struct. It finds beside the op's types
//   PlanOf<Choice> make_plan(const Problem&, const PlanContext&)                  the planner's (planning/planner.h)
//   PlanOf<Choice> check_plan(const Choice&, const Problem&, const PlanContext&)
//   Problem::agreed(), result_bytes(Rank); Choice::agreed(), from_json(); Tables(Problem, Choice, PlanContext);
//   Operands::written(); host_program(Schedule, Cursors, Operands, stand-in); Arguments::stand_in
#pragma once

#include <tilewire/matrix.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "executor/call.h"
#include "planning/plan_parts.h"

namespace tilewire {

// `json` is empty where the planner is to choose.
template <class Choice, class Problem>
PlanOf<Choice> plan_of(const Problem& problem, const std::string& json, const PlanContext& context) {
  return json.empty() ? make_plan(problem, context) : check_plan(Choice::from_json(json), problem, context);
}

template <class OpProblem, class Choice, class OpTables>
struct PlannedOp {
  using Problem = OpProblem;
  using Plan = PlanOf<Choice>;
  using Tables = OpTables;

  static Plan make_plan(const Problem& problem, const std::string& plan_json, const PlanContext& context) {
    return plan_of<Choice>(problem, plan_json, context);
  }
  static Tables make_tables(const Problem& problem, const Plan& plan, const PlanContext& context) {
    return Tables(problem, plan.choice, context);
  }
  static int64_t result_bytes(const Problem& problem, Rank me) { return problem.result_bytes(me); }
  // Where the tables are all that a schedule needs.
  template <class Arguments>
  static auto make_schedule(const Tables& tables, Epoch epoch, const Arguments&, Session&) {
    return tables.schedule(epoch);
  }
  template <class Schedule, class Operands, class Arguments>
  static Call::Program program(const Schedule& schedule, const Plan& plan, const Operands& operands,
                               const Arguments& arguments) {
    return host_program(schedule, plan.choice.cursors, operands, arguments.stand_in ? &arguments.stand_in : nullptr);
  }
  template <class Operands>
  static std::vector<MatrixView> results(const Operands& operands) {
    return operands.written();
  }
  static CallParts agreed(const Problem& problem, const Plan& plan) {
    return joined(problem.agreed(), plan.choice.agreed());
  }
};

}  // namespace tilewire
