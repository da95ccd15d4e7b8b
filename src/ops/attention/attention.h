// The call: ring attention on the ranks of a communicator.
#pragma once

#include <tilewire/call.h>
#include <tilewire/matrix.h>
#include <tilewire/tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "executor/op_call.h"
#include "operands/row_counts.h"
#include "ops/attention/host_executor.h"
#include "ops/attention/plan.h"
#include "ops/attention/problem.h"
#include "executor/planned_op.h"

namespace tilewire::attention {

// What a communicator keeps for one call at a time.
struct CallMemory {
  Schedule schedule;
  SightTables sight;
  std::vector<float> sums;  // in step-major order (HostOperands::sums)
};

struct Arguments {
  HeadsView q;  // [batch, S_r, q heads, head dim]
  HeadsView k;  // [batch, S_kv_r, k heads, head dim]
  HeadsView v;  // likewise
  bool is_causal = false;
  std::optional<double> scale{};  // 1 / sqrt(head dim) unless given
  Placement placement = Placement::contiguous;
  std::vector<int64_t> positions{};     // of this rank's queries, where they are given
  std::vector<int64_t> kv_positions{};  // and of its keys
  std::vector<int64_t> documents{};     // see Problem
  std::vector<int64_t> kv_documents{};
  RowCounts rows{};
  RowCounts kv_rows{};  // `same`: as rows says, of the own k where that is no list
  DataType out_dtype = DataType::bf16;
  std::string plan_json{};  // empty: the planner chooses
  ItemStandIn stand_in{};   // for tests and benchmarks

  // Called once the row counts are known, before anything is sent: gives memory for the results, [batch * S_r, q heads *
  // head dim] and [batch * q heads, S_r] of fp32. What it throws refuses the call; std::bad_alloc and std::length_error
  // become Error(resource).
  struct Results {
    MatrixView out;
    MatrixView lse;
  };
  std::function<Results(const Problem&)> make_results{};

  CallMemory* memory = nullptr;  // of a call that has begun (Op::run_row)
};

// What is particular to this op about a call; the rest is OpCalls' (see executor/op_call.h for the members) and
// PlannedOp's.
struct Op : PlannedOp<PlanChoice, ScheduleTables> {
  using Schedule = attention::Schedule;
  using Arguments = attention::Arguments;
  using Operands = HostOperands;

  static constexpr const char* kName = kCallName;
  static constexpr const char* kMismatchAdvice = kRowsAdvice;
  static const char* exchanged(const Arguments& arguments);
  static void check(const Arguments& arguments, Session& session);
  static Problem make_problem(const Arguments& arguments, Session& session, CountExchange& counts);
  // What of the schedule is this call's own, and room for sums.
  static void settle(const Arguments& arguments, const Problem& problem, const Tables& tables);
  static Operands make_operands(const Arguments& arguments, const Problem& problem, Rank me);
  static Schedule make_schedule(const Tables& tables, Epoch epoch, const Arguments& arguments, Session& session);
  static CallReport report(const Schedule& schedule);

  using Kept = CallMemory;
  template <class Run>
  static CallReport run_row(const Arguments& arguments, Kept& memory, const Run& run) {
    Arguments call = arguments;
    call.memory = &memory;
    return run(call);
  }
};

// The calls of one communicator.
using Operation = OpCalls<Op>;

}  // namespace tilewire::attention
