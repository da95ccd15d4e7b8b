// What the struct of an op must have, as a concept: an op that lacks a member, or has one with other parameters or
// another result, is refused where it is listed or called, and the compiler names that member. What each is for is in
// op_call.h.
#pragma once

#include <tilewire/call.h>
#include <tilewire/matrix.h>

#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

#include "executor/call.h"
#include "executor/count_exchange.h"
#include "planning/plan_parts.h"

namespace tilewire {

template <class Op>
concept OpDescription = requires {
  typename Op::Problem;
  typename Op::Plan;
  typename Op::Tables;
  typename Op::Schedule;
  typename Op::Arguments;
  typename Op::Operands;
}
&&requires(const typename Op::Problem& problem, const typename Op::Plan& plan, const std::string& text,
           const typename Op::Arguments& arguments) {
  { Op::kName } -> std::convertible_to<const char*>;
  { problem.text() } -> std::same_as<std::string>;
  { problem == problem } -> std::same_as<bool>;
  { plan.half_bytes } -> std::convertible_to<int64_t>;
  { plan.predicted_s } -> std::convertible_to<double>;
  { to_json(plan.choice) } -> std::same_as<std::string>;
  { arguments.plan_json } -> std::convertible_to<std::string>;
  { Op::agreed(problem, plan) } -> std::same_as<CallParts>;
}
&&requires(const typename Op::Arguments& arguments, const typename Op::Problem& problem,
           const typename Op::Operands& operands, const std::string& plan_json, const typename Op::Plan& plan,
           const PlanContext& context, Session& session, CountExchange& counts) {
  { Op::check(arguments, session) } -> std::same_as<void>;
  { Op::make_problem(arguments, session, counts) } -> std::same_as<typename Op::Problem>;
  { Op::make_plan(problem, plan_json, context) } -> std::same_as<typename Op::Plan>;
  { Op::make_tables(problem, plan, context) } -> std::same_as<typename Op::Tables>;
  { Op::make_operands(arguments, problem, Rank{}) } -> std::same_as<typename Op::Operands>;
  { Op::result_bytes(problem, Rank{}) } -> std::same_as<int64_t>;
  { Op::results(operands) } -> std::same_as<std::vector<MatrixView>>;
}
&&requires(const typename Op::Tables& tables, const typename Op::Schedule& schedule, const typename Op::Plan& plan,
           const typename Op::Operands& operands, const typename Op::Arguments& arguments, Session& session) {
  { Op::make_schedule(tables, Epoch{}, arguments, session) } -> std::same_as<typename Op::Schedule>;
  { Op::program(schedule, plan, operands, arguments) } -> std::same_as<Call::Program>;
  { Op::report(schedule) } -> std::same_as<CallReport>;
};

// Whether GPU ranks can do it: ops that cannot say so by `static constexpr bool kHasKernel = false`.
template <class Op>
constexpr bool has_kernel() {
  if constexpr (requires { Op::kHasKernel; }) {
    return Op::kHasKernel;
  } else {
    return true;
  }
}

}  // namespace tilewire
