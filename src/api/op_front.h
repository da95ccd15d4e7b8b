// What the public functions of all operations do alike: run a call, agree on the shapes of a handle, answer a query for
// a plan. An operation's file has what differs: how its public arguments and shape become those of its folder.
#pragma once

#include <tilewire/call.h>
#include <tilewire/communicator.h>
#include <tilewire/plan_query.h>

#include <cstdint>
#include <string>
#include <vector>

#include "api/communicator_parts.h"
#include "api/plan_query.h"

namespace tilewire {

// `fixed`: the problem of the handle that the call is made through.
template <class Op>
CallReport run_op(Communicator& comm, const typename Op::Arguments& arguments,
                  const typename Op::Problem* fixed = nullptr) {
  return comm.parts().op<Op>().run(arguments, fixed);
}

// What a handle keeps of its making.
struct HandlePlan {
  std::string json;
  std::string explanation;
};

// Collective: plan, agreement and memory for all calls of a handle.
template <class Op>
HandlePlan agree_op(Communicator& comm, const typename Op::Problem& problem, const std::string& plan_json) {
  const auto plan = comm.parts().op<Op>().agree(problem, plan_json);
  return {to_json(plan.choice), plan.explain()};
}

// Public arguments with what a handle's shape has settled: row counts and plan. What else is fixed is the operation's.
template <class Arguments, class Shape>
Arguments with_handle(Arguments arguments, const Shape& shape, const std::string& plan_json) {
  arguments.rows = {RowCounts::From::list, shape.rows};
  arguments.plan_json = plan_json;
  return arguments;
}

// The folder's simulate() for the plan that its planner makes.
template <class Op>
PlanAnswer plan_op(const MachineQuery& query, const typename Op::Problem& problem, const std::string& plan_json) {
  const PlanSite site(query);
  const auto plan = Op::make_plan(problem, plan_json, site.context());
  return plan_answer(plan, simulate(problem, plan.choice, site.topology(), site.context(), query.wants_timeline));
}

}  // namespace tilewire
