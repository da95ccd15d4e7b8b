// The call: AllGather+GEMM on the ranks of a communicator.
#pragma once

#include <tilewire/call.h>
#include <tilewire/matrix.h>

#include <functional>
#include <string>
#include <vector>

#include "executor/op_call.h"
#include "ops/ag_gemm/host_executor.h"
#include "ops/ag_gemm/plan.h"
#include "ops/ag_gemm/problem.h"

namespace tilewire::ag_gemm {

struct Arguments {
  MatrixView a;               // [M_r, K], any strides
  std::vector<MatrixView> b;  // [K, N_w] each, any strides (a weight stored as [N, K] is a view with swapped strides)
  std::vector<const void*> bias;  // empty, or one a weight: N_w values of bias_dtype, or nullptr for none
  DataType bias_dtype = DataType::fp32;
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

// What is particular to this op about a call; the rest is OpCalls' (see executor/op_call.h for the members).
struct Op {
  using Problem = ag_gemm::Problem;
  using Plan = ag_gemm::Plan;
  using Tables = ScheduleTables;
  using Schedule = ag_gemm::Schedule;
  using Arguments = ag_gemm::Arguments;
  using Operands = HostOperands;

  static constexpr const char* kName = kCallName;
  static void check(const Arguments& arguments, Session& session);
  static Problem make_problem(const Arguments& arguments, Session& session, CountExchange& counts);
  static Plan make_plan(const Problem& problem, const std::string& plan_json, const PlanContext& context);
  static Tables make_tables(const Problem& problem, const Plan& plan, const PlanContext& context);
  static Operands make_operands(const Arguments& arguments, const Problem& problem);
  static int64_t result_bytes(const Problem& problem);
  static std::vector<MatrixView> results(const Operands& operands);
  static std::string agreed_text(const Problem& problem, const Plan& plan);
  static Schedule make_schedule(const Tables& tables, Epoch epoch, const Arguments& arguments, Session& session);
  static Call::Program program(const Schedule& schedule, const Plan& plan, const Operands& operands,
                               const Arguments& arguments);
  static CallReport report(const Schedule& schedule);
};

// The calls of one communicator.
using Operation = OpCalls<Op>;

}  // namespace tilewire::ag_gemm
