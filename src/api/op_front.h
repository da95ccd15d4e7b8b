// What the public functions of all operations do alike: run a call, make a handle and call it, answer a query for a
// plan. Which operands there are is the operation's to say: its file says what differs by a struct F with the types
//   Op                              of its folder
//   DeviceOp, GpuPlan               what describes its calls on GPU ranks, where it has a kernel, and the plans of these,
//                                   for queries; an operation without refuses such ranks
//   Arguments                       the public ones, with `plan_json`
//   Shape                           of its handle, likewise
// and the static members
//   Op::Arguments to_op(const Arguments&, Rank)     of this rank; may refer to what it is given
//   Op::Problem to_problem(const Shape&)
//   void settle(Arguments&, const Shape&)           what of a call a handle has fixed, the plan aside
#pragma once

#include <tilewire/call.h>
#include <tilewire/op_handle.h>
#include <tilewire/plan_query.h>

#include "api/communicator_parts.h"
#include "api/plan_query.h"

namespace tilewire {

// Of a call on a stream where Tilewire was built without CUDA, and so has CPU ranks alone: tells the others, and throws.
[[noreturn]] inline void refuse_stream(Communicator::Parts& parts, const char* op) {
  Call call(*parts.session, op);
  try {
    parts.session->check_operands_on(/*is_gpu=*/true, op);
  } catch (...) {
    refuse_for_current_exception(call, op);
  }
  throw Error(ErrorKind::internal, {.what = "a GPU rank without CUDA", .where = op});
}

template <class F>
CallReport run_op(Communicator& comm, const typename F::Arguments& arguments) {
  return comm.parts().op<typename F::Op>().run(F::to_op(arguments, Rank{comm.rank()}));
}

// On GPU ranks, into `stream`.
template <class F>
CallReport run_device_op(Communicator& comm, const typename F::Arguments& arguments, void* stream) {
#if defined(TILEWIRE_HAS_CUDA)
  return comm.parts().device_op<typename F::DeviceOp>().run(F::to_op(arguments, Rank{comm.rank()}), stream);
#else
  static_cast<void>(stream);
  static_cast<void>(arguments);
  refuse_stream(comm.parts(), F::Op::kName);
#endif
}

// Collective: plan, agreement and memory for all calls of a handle.
template <class F>
HandlePlan agree_op(Communicator& comm, const typename F::Shape& shape) {
#if defined(TILEWIRE_HAS_CUDA)
  if constexpr (requires { typename F::DeviceOp; }) {
    if (comm.parts().session->gpu() != nullptr) {
      const auto made = comm.parts().device_op<typename F::DeviceOp>().agree(F::to_problem(shape), shape.plan_json);
      return {made.json, made.explanation};
    }
  }
#endif
  const auto plan = comm.parts().op<typename F::Op>().agree(F::to_problem(shape), shape.plan_json);
  return {to_json(plan.choice), plan.explain()};
}

template <class F>
void settle(const OpHandle<typename F::Shape>& handle, typename F::Arguments& arguments) {
  arguments.plan_json = handle.plan_json();
  F::settle(arguments, handle.shape());
}

template <class F>
CallReport run_device_handle(const OpHandle<typename F::Shape>& handle, typename F::Arguments arguments, void* stream) {
  settle<F>(handle, arguments);
#if defined(TILEWIRE_HAS_CUDA)
  const typename F::Op::Problem problem = F::to_problem(handle.shape());
  return handle.parts().template device_op<typename F::DeviceOp>().run(
      F::to_op(arguments, handle.parts().session->rank()), stream, &problem);
#else
  static_cast<void>(stream);
  refuse_stream(handle.parts(), F::Op::kName);
#endif
}

template <class F>
CallReport run_handle(const OpHandle<typename F::Shape>& handle, typename F::Arguments arguments) {
  settle<F>(handle, arguments);
  const typename F::Op::Problem problem = F::to_problem(handle.shape());
  return handle.parts().template op<typename F::Op>().run(F::to_op(arguments, handle.parts().session->rank()),
                                                          &problem);
}

// What simulate() says of the plan that the op's planner makes.
template <class F>
requires SimulatedOp<typename F::Op> PlanAnswer plan_op(const typename OpHandle<typename F::Shape>::Query& query) {
  const PlanSite site(query);
  const auto problem = F::to_problem(query.shape);
  const auto answer = [&](const auto& plan) {
    const bool wants_timeline = query.wants_timeline;
    return plan_answer(site, plan, simulate(problem, plan.choice, site.topology(), site.context(), wants_timeline));
  };
  if constexpr (requires { typename F::GpuPlan; }) {
    if (site.context().machine.ranks_per_gpu > 0) {
      return answer(make_plan<typename F::GpuPlan>(problem, query.shape.plan_json, site.context()));
    }
  }
  return answer(F::Op::make_plan(problem, query.shape.plan_json, site.context()));
}

}  // namespace tilewire
