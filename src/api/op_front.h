// What the public functions of all operations do alike: run a call, make a handle and call it, answer a query for a
// plan. An operation's file says what differs by a struct F with the types
//   Op                              of its folder
//   Arguments                       the public ones, with `rows` and `plan_json`
//   Shape                           of its handle, with `rows` and `plan_json`
// and the static members
//   Op::Arguments to_op(const Arguments&)           may refer to what it is given
//   Op::Problem to_problem(const Shape&)
//   void settle(Arguments&, const Shape&)           what else of a call a handle has fixed, rows and plan aside
#pragma once

#include <tilewire/call.h>
#include <tilewire/op_handle.h>
#include <tilewire/plan_query.h>

#include "api/communicator_parts.h"
#include "api/plan_query.h"

namespace tilewire {

template <class F>
CallReport run_op(Communicator& comm, const typename F::Arguments& arguments) {
  return comm.parts().op<typename F::Op>().run(F::to_op(arguments));
}

// Collective: plan, agreement and memory for all calls of a handle.
template <class F>
HandlePlan agree_op(Communicator& comm, const typename F::Shape& shape) {
  const auto plan = comm.parts().op<typename F::Op>().agree(F::to_problem(shape), shape.plan_json);
  return {to_json(plan.choice), plan.explain()};
}

template <class F>
CallReport run_handle(const OpHandle<typename F::Shape>& handle, typename F::Arguments arguments) {
  arguments.rows = {RowCounts::From::list, handle.shape().rows};
  arguments.plan_json = handle.plan_json();
  F::settle(arguments, handle.shape());
  const typename F::Op::Problem problem = F::to_problem(handle.shape());
  return handle.parts().template op<typename F::Op>().run(F::to_op(arguments), &problem);
}

// The folder's simulate() for the plan that its planner makes.
template <class F>
requires SimulatedOp<typename F::Op> PlanAnswer plan_op(const typename OpHandle<typename F::Shape>::Query& query) {
  const PlanSite site(query);
  const auto problem = F::to_problem(query.shape);
  const auto plan = F::Op::make_plan(problem, query.shape.plan_json, site.context());
  return plan_answer(plan, simulate(problem, plan.choice, site.topology(), site.context(), query.wants_timeline));
}

}  // namespace tilewire
