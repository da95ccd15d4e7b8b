// The call: GEMM+ReduceScatter on the ranks of a communicator.
#pragma once

#include <tilewire/call.h>
#include <tilewire/matrix.h>

#include <functional>

#include "executor/op_call.h"
#include "executor/planned_op.h"
#include "ops/gemm_rs/host_executor.h"
#include "ops/gemm_rs/plan.h"
#include "ops/gemm_rs/problem.h"
#include "reduction/reduction_operands.h"

namespace tilewire::gemm_rs {

struct Arguments : ReductionArguments {  // residual: [own rows, N]
  RowCounts rows;                        // of the result: a list, or `same`: dealt out evenly

  // Called before anything is sent: gives memory for the result, [own rows, N]. What it throws refuses the call;
  // std::bad_alloc and std::length_error become Error(resource).
  std::function<MatrixView(const Problem&)> make_results;
};

// What is particular to this op about a call; the rest is OpCalls' (see executor/op_call.h for the members) and
// PlannedOp's.
struct Op : PlannedOp<PlanChoice, ScheduleTables> {
  using Schedule = gemm_rs::Schedule;
  using Arguments = gemm_rs::Arguments;
  using Operands = HostOperands;

  static constexpr const char* kName = kCallName;
  static constexpr const char* kMismatchAdvice =
      "bring the same number of rows on all ranks, and pass the same rows= on all of them, or on none";
  static void check(const Arguments& arguments, Session& session);
  static Problem make_problem(const Arguments& arguments, Session& session, CountExchange& counts);
  static Operands make_operands(const Arguments& arguments, const Problem& problem, Rank me);
  static CallReport report(const Schedule& schedule);
};

// The calls of one communicator.
using Operation = OpCalls<Op>;

}  // namespace tilewire::gemm_rs
