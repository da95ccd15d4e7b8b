// The members of an op's description (op_description.h) that are the same text for all ops, as a base of the op's
// struct. It finds beside the op's types
//   Problem::agreed(), result_bytes(Rank); Choice as planning/op_plans.h has it, and its agreed();
//   Tables(Problem, Choice, PlanContext);
//   Operands::written(); host_program(Schedule, Cursors, Operands, stand-in); Arguments::stand_in
#pragma once

#include <tilewire/matrix.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "executor/call.h"
#include "planning/op_plans.h"

namespace tilewire {

template <class Choice, class OpTables>
struct PlannedOp {
  using Problem = typename Choice::Problem;
  using Plan = PlanOf<Choice>;
  using Tables = OpTables;

  static Plan make_plan(const Problem& problem, const std::string& plan_json, const PlanContext& context) {
    return tilewire::make_plan<Choice>(problem, plan_json, context);
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
