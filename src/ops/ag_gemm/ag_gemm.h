// The call: AllGather+GEMM on the ranks of a communicator.
#pragma once

#include <tilewire/call.h>
#include <tilewire/matrix.h>

#include <functional>
#include <string>
#include <vector>

#include "executor/op_call.h"
#include "executor/planned_op.h"
#include "operands/row_counts.h"
#include "operands/weighted_matmul.h"
#include "ops/ag_gemm/host_executor.h"
#include "ops/ag_gemm/plan.h"
#include "ops/ag_gemm/problem.h"

namespace tilewire::ag_gemm {

struct Arguments : MatmulOperands {
  DataType out_dtype = DataType::bf16;
  RowCounts rows;
  bool wants_gathered = false;
  std::string plan_json;  // empty: the planner chooses
  TileStandIn stand_in;   // for tests and benchmarks

  // Called once the row counts are known, before anything is sent: gives memory for the results, [sum M_r, N_w] each
  // and, where wanted, [sum M_r, K]. What it throws refuses the call; std::bad_alloc and std::length_error become
  // Error(resource).
  struct Results {
    std::vector<MatrixView> out;
    MatrixView gathered;
  };
  std::function<Results(const Problem&)> make_results;
};

// What is particular to this op about a call; the rest is OpCalls' (see executor/op_call.h for the members) and
// PlannedOp's.
struct Op : PlannedOp<PlanChoice, ScheduleTables> {
  using Schedule = ag_gemm::Schedule;
  using Arguments = ag_gemm::Arguments;
  using Operands = HostOperands;

  static constexpr const char* kName = kCallName;
  static constexpr const char* kMismatchAdvice = kRowsAdvice;
  static const char* exchanged(const Arguments& arguments) { return exchanged_rows(arguments.rows); }
  static void check(const Arguments& arguments, Session& session);
  static Problem make_problem(const Arguments& arguments, Session& session, CountExchange& counts);
  static Operands make_operands(const Arguments& arguments, const Problem& problem, Rank me);
  static Schedule make_schedule(const Tables& tables, Epoch epoch, const Arguments& arguments, Session& session);
  static CallReport report(const Schedule& schedule);
};

// The calls of one communicator.
using Operation = OpCalls<Op>;

}  // namespace tilewire::ag_gemm
