// The calls of an op on CPU ranks, whose life is that of call_cycle.h: tables, roles as threads, NaN after an abort.
//
// An op is a struct (op_description.h has it as a concept) with the types
//   Problem      text() says all of it but the op's name
//   Plan         a PlanOf its Choice; half_bytes: what the call needs of each half
//                it may have Problem shape() (call_cycle.h: HasShape)
//   Tables, Schedule, Arguments, Operands
//                Tables may have int64_t bytes(), which bounds how many are kept
// and the static members, in the order of their use,
//   const char* kName
//   void check(const Arguments&, Session&)                    whatever one rank can find wrong
//   Problem make_problem(const Arguments&, Session&, CountExchange&)
//   Plan make_plan(const Problem&, const std::string& plan_json, const PlanContext&)    plan_json may be empty
//   Tables make_tables(const Problem&, const Plan&, const PlanContext&)
//   Operands make_operands(const Arguments&, const Problem&, Rank me)    asks for the results, checks them
//   int64_t result_bytes(const Problem&, Rank me)             of all results, for the error when there is no memory
//   std::vector<MatrixView> results(const Operands&)          what becomes NaN
//   CallParts agreed(const Problem&, const Plan&)             equal on all ranks, or the call is a mismatch; the first
//                                                             part is what a rank brings, each may have an advice
//   Schedule make_schedule(const Tables&, Epoch, const Arguments&, Session&)
//   Call::Program program(const Schedule&, const Plan&, const Operands&, const Arguments&)    both first live on
//   CallReport report(const Schedule&)                        bytes; the rest is filled in here
// and to_json(Choice) beside them. It may have
//   const char* kMismatchAdvice                               what to do about ranks that do not bring the same
//   const char* exchanged(const Arguments&)                   must have it if make_problem exchanges anything: what it
//                                                             calls its first exchange in this call, nullptr where it
//                                                             makes none. Refusals before it travel in it.
//   void settle(const Arguments&, const Problem&, const Tables&)    makes ready what is this call's own, before anything is
//                                                             sent; what it throws refuses the call
//   Kept, CallReport run_row(const Arguments&, Kept&, run)    what its user takes for a call is a row of them, with none
//                                                             of another thread between: run(arguments) makes one. What
//                                                             is kept is memory for one row at a time
#pragma once

#include <tilewire/call.h>

#include <chrono>
#include <string>
#include <tuple>

#include "executor/call_cycle.h"
#include "executor/matrix_copy.h"

namespace tilewire {

template <OpDescription OneOp>
class HostBackEnd {
 public:
  using Op = OneOp;
  using Problem = typename Op::Problem;
  using Plan = typename Op::Plan;
  using Operands = typename Op::Operands;
  using Arguments = typename Op::Arguments;
  using Ready = typename Op::Tables;
  struct Target {};
  static constexpr int64_t kMostReadyBytes = int64_t{64} << 20;

  explicit HostBackEnd(Session& session) : session_(session) {}

  void check_ranks() const {
    if constexpr (has_kernel<Op>()) {
      session_.check_operands_on(/*is_gpu=*/false, Op::kName);
    } else {
      session_.check_has_cpu_ranks(Op::kName);
    }
  }
  void check(const Arguments&) const {}
  std::string variant(const Arguments&) const { return ""; }
  Plan make_plan(const Problem& problem, const std::string& plan_json, const PlanContext& context) const {
    return Op::make_plan(problem, plan_json, context);
  }
  std::string plan_json(const Plan& plan) const { return to_json(plan.choice); }
  CallParts agreed(const Problem& problem, const Plan& plan) const { return Op::agreed(problem, plan); }
  Ready make_ready(const Problem& problem, const Plan& plan, const PlanContext& context) const {
    return Op::make_tables(problem, plan, context);
  }
  void check_operands(const Operands&) const {}
  void await_calls() const {}  // a call ends before the next one begins
  bool is_loaded(const Ready&) const { return true; }
  void load(Prepared<HostBackEnd>&, const Arguments&) const {}
  void note_agreed(Call&, const Prepared<HostBackEnd>&) const {}

  void settle(const Arguments& arguments, const Problem& problem,
              const Prepared<HostBackEnd>& prepared) const requires requires {
    Op::settle(arguments, problem, prepared.ready);
  }
  { Op::settle(arguments, problem, prepared.ready); }

  CallReport run(Call& call, const CheckedCall<HostBackEnd>& checked, const Arguments& arguments, const Target&) const {
    const Prepared<HostBackEnd>& prepared = *checked.prepared;
    typename Op::Schedule schedule;
    const auto begin = std::chrono::steady_clock::now();
    call.run(checked.hash, [&](Epoch epoch) {
      schedule = Op::make_schedule(prepared.ready, epoch, arguments, session_);
      return Op::program(schedule, prepared.plan, checked.operands, arguments);
    });
    CallReport report = Op::report(schedule);
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return report;
  }
  void spoil(const Operands& operands) const { fill_with_nan(Op::results(operands)); }

 private:
  Session& session_;
};

template <OpDescription Op>
class OpCalls : public CallCycle<HostBackEnd<Op>> {
 public:
  using CallCycle<HostBackEnd<Op>>::CallCycle;

  // Blocks until the results are there and the arena may be used by the next call. Throws what section 7 of the
  // architecture page says. Once the op has asked for the results, they are NaN after every error but this rank's own
  // refusal, which leaves them untouched. `fixed`: the problem of a handle, from which the arguments may not differ.
  CallReport run(const typename Op::Arguments& arguments, const typename Op::Problem* fixed = nullptr) {
    return this->run_row(arguments, {}, fixed);
  }
};

// A list of ops (ops/op_list.h), and the objects that a communicator has of them, one each.
template <OpDescription... Op>
struct OpTypes {};

template <class List>
class OpObjects;

template <OpDescription... Op>
class OpObjects<OpTypes<Op...>> {
 public:
  explicit OpObjects(Session& session) : calls_(OpCalls<Op>(session)...) {}

  template <class One>
  OpCalls<One>& get() {
    return std::get<OpCalls<One>>(calls_);
  }

 private:
  std::tuple<OpCalls<Op>...> calls_;
};

}  // namespace tilewire
