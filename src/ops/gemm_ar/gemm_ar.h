// The call: GEMM+AllReduce on the ranks of a communicator.
#pragma once

#include <tilewire/call.h>
#include <tilewire/matrix.h>

#include <functional>

#include "executor/op_call.h"
#include "executor/planned_op.h"
#include "ops/gemm_ar/host_executor.h"
#include "ops/gemm_ar/plan.h"
#include "ops/gemm_ar/problem.h"
#include "reduction/reduction_operands.h"

namespace tilewire::gemm_ar {

struct Arguments : ReductionArguments {  // residual: [M, N]; that and bias are the same on all ranks
  // Called before anything is sent: gives memory for the result, [M, N]. What it throws refuses the call;
  // std::bad_alloc and std::length_error become Error(resource).
  std::function<MatrixView(const Problem&)> make_results;
};

// What is particular to this op about a call; the rest is OpCalls' (see executor/op_call.h for the members) and
// PlannedOp's.
struct Op : PlannedOp<PlanChoice, ScheduleTables> {
  using Schedule = gemm_ar::Schedule;
  using Arguments = gemm_ar::Arguments;
  using Operands = HostOperands;

  static constexpr const char* kName = kCallName;
  static constexpr const char* kMismatchAdvice = "bring the same number of rows on all ranks";
  static void check(const Arguments& arguments, Session& session);
  static Problem make_problem(const Arguments& arguments, Session& session, CountExchange& counts);
  static Operands make_operands(const Arguments& arguments, const Problem& problem, Rank me);
  static CallReport report(const Schedule& schedule);
};

// The calls of one communicator.
using Operation = OpCalls<Op>;

}  // namespace tilewire::gemm_ar
