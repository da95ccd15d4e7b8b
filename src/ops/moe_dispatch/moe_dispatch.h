// The call: MoE dispatch + grouped GEMM on the ranks of a communicator.
#pragma once

#include <tilewire/call.h>
#include <tilewire/error.h>
#include <tilewire/matrix.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "executor/op_call.h"
#include "executor/planned_op.h"
#include "ops/moe_dispatch/caller_routes.h"
#include "ops/moe_dispatch/host_executor.h"
#include "ops/moe_dispatch/plan.h"
#include "ops/moe_dispatch/problem.h"

namespace tilewire::moe_dispatch {

struct Arguments {
  MatrixView x;                         // [own tokens, H]
  CallerRoutes routes;                  // of each token its experts, by their numbers among all
  std::vector<MatrixView> w;            // [H, I] of each own expert, in the order of their numbers
  int64_t cols = 0;                     // I, which a rank without experts has too
  std::vector<int32_t> rank_of_expert;  // empty: all ranks have as many as this one, in rank order
  DataType out_dtype = DataType::bf16;
  std::optional<int64_t> max_tokens;         // rows that a rank may get; without it see Op::run_row()
  std::optional<int64_t> max_source_tokens;  // tokens that a rank may bring; max_tokens unless given
  std::string plan_json;                     // empty: the planner chooses
  TileStandIn stand_in;                      // for tests and benchmarks

  // Of a step of a call (Op::run_row). What is taken of the routes, on CPU ranks.
  RouteCopy* copy = nullptr;
  // Counts alone, in place of the call: into `counts`.
  bool counts_only = false;
  CallCounts* counts = nullptr;
  // What was counted before with the same copy, in place of max_tokens.
  std::optional<CallCounts> counted;

  // Called before anything is sent, gives memory for the results: [result rows of the problem, I], [result rows, 3]
  // origins, and [own experts + 1] offsets. What it throws refuses the call; std::bad_alloc and std::length_error become
  // Error(resource).
  struct Results {
    MatrixView out;
    int32_t* origins = nullptr;
    int64_t* offsets = nullptr;
  };
  std::function<Results(const Problem&)> make_results;
};

// What is particular to this op about a call; the rest is OpCalls' (see executor/op_call.h for the members) and
// PlannedOp's.
struct Op : PlannedOp<PlanChoice, ScheduleTables> {
  using Schedule = moe_dispatch::Schedule;
  using Arguments = moe_dispatch::Arguments;
  using Operands = HostOperands;

  static constexpr const char* kName = kCallName;
  static constexpr const char* kMismatchAdvice = "all ranks bring tokens of the same H, k and dtype";
  static void check(const Arguments& arguments, Session& session);
  static Problem make_problem(const Arguments& arguments, Session& session, CountExchange& counts);
  static Operands make_operands(const Arguments& arguments, const Problem& problem, Rank me);
  static Schedule make_schedule(const Tables& tables, Epoch epoch, const Arguments& arguments, Session& session);
  // Throws Error(resource) of a call in which a rank would have got more rows than it may: on all ranks alike.
  static CallReport report(const Schedule& schedule);

  using Kept = RouteCopy;
  // Without max_tokens: a call that counts, then one whose results are as large as was counted. Both go by one copy of the
  // routes. `run(arguments)` makes a call.
  template <class Run>
  static CallReport run_row(const Arguments& arguments, Kept& copy, const Run& run) {
    Arguments step = arguments;
    step.copy = &copy;
    if (arguments.max_tokens) return run(step);
    CallCounts counts;
    step.counts_only = true;
    step.counts = &counts;
    step.plan_json.clear();
    const CallReport counting = run(step);
    step.counts_only = false;
    step.counted = std::move(counts);
    step.plan_json = arguments.plan_json;
    CallReport report = run(step);
    report.seconds += counting.seconds;
    report.node_bytes += counting.node_bytes;
    report.network_bytes += counting.network_bytes;
    return report;
  }
};

// Of a call in which rank `of` would have got so many rows, `most` of them at most. Nothing has moved.
Error overflow_error(Rank of, int64_t rows, int64_t most);

// The calls of one communicator.
using Operation = OpCalls<Op>;

}  // namespace tilewire::moe_dispatch
