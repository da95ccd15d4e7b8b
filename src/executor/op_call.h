// The life of a call, in the order that every op has: check and refuse, or begin, agree and run; NaN after an abort.
// With it the plans and tables of the problems seen so far, and what all ranks have agreed on.
//
// An op is a struct (op_description.h has it as a concept) with the types
//   Problem      text() says all of it but the op's name
//   Plan         a PlanOf its Choice; half_bytes: what the call needs of each half
//   Tables, Schedule, Arguments, Operands
// and the static members, in the order of their use,
//   const char* kName
//   void check(const Arguments&, Session&)                    whatever one rank can find wrong
//   Problem make_problem(const Arguments&, Session&, CountExchange&)
//   Plan make_plan(const Problem&, const std::string& plan_json, const PlanContext&)    plan_json may be empty
//   Tables make_tables(const Problem&, const Plan&, const PlanContext&)
//   Operands make_operands(const Arguments&, const Problem&, Rank me)    asks for the results, checks them
//   int64_t result_bytes(const Problem&, Rank me)             of all results, for the error when there is no memory
//   std::vector<MatrixView> results(const Operands&)          what becomes NaN
//   std::string agreed_text(const Problem&, const Plan&)      equal on all ranks, or the call is a mismatch; the name
//                                                             is put before it here
//   Schedule make_schedule(const Tables&, Epoch, const Arguments&, Session&)
//   Call::Program program(const Schedule&, const Plan&, const Operands&, const Arguments&)    both first live on
//   CallReport report(const Schedule&)                        bytes; the rest is filled in here
// and to_json(Choice) beside them. It may have
//   const char* kMismatchAdvice                               what to do about ranks that do not make the same call;
//                                                             its further lines: see mismatch_text()
//   const char* exchanged(const Arguments&)                   must have it if make_problem exchanges anything: what it
//                                                             calls its first exchange in this call, nullptr where it
//                                                             makes none. Refusals before it travel in it.
#pragma once

#include <tilewire/call.h>
#include <tilewire/error.h>

#include <chrono>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "executor/call.h"
#include "executor/count_exchange.h"
#include "executor/matrix_copy.h"
#include "executor/op_description.h"
#include "executor/session.h"
#include "planning/plan_parts.h"
#include "schedule/hash.h"

namespace tilewire {

PlanContext plan_context(Session& session);

// "all_gather_matmul of 128 rows ...": what `text` says of a call of this op.
std::string text_of_call(const char* op, const std::string& text);

// In a catch block: tells the other ranks why this one does not make the call, and throws it on. What is no Error
// keeps its type, but for a lack of memory, which becomes Error(resource). `exchange`: that in which it is told (see
// Call::refuse_in_exchange), or nullptr.
[[noreturn]] void refuse_for_current_exception(Call& call, const char* op, const char* exchange = nullptr);

// Throws Error(resource) that says how many bytes were asked for.
[[noreturn]] void throw_no_result_memory(const char* op, int64_t bytes);

// Throws Error(invalid_argument) that has both texts.
[[noreturn]] void refuse_other_problem(const char* op, const std::string& problem, const std::string& fixed);

template <class Op>
constexpr const char* mismatch_advice_of() {
  if constexpr (requires { Op::kMismatchAdvice; }) {
    return Op::kMismatchAdvice;
  } else {
    return kMismatchAdvice;
  }
}

// What the call exchanges first, nullptr where it exchanges nothing.
template <class Op>
const char* exchanged_of(const typename Op::Arguments& arguments) {
  if constexpr (requires { Op::exchanged(arguments); }) {
    return Op::exchanged(arguments);
  } else {
    return nullptr;
  }
}

// The next call. Where another rank has ended the communicator it throws this rank's own mistake, if there is one: all
// ranks that make it are to hear of it, however soon the first of them has left because of it.
template <class Op>
Call next_call(Session& session, const typename Op::Arguments& arguments) {
  try {
    return Call(session, Op::kName, mismatch_advice_of<Op>());
  } catch (...) {
    if (session.is_dead()) Op::check(arguments, session);
    throw;
  }
}

template <OpDescription Op>
class OpCalls {
 public:
  using Problem = typename Op::Problem;
  using Plan = typename Op::Plan;
  using Arguments = typename Op::Arguments;

  explicit OpCalls(Session& session) : session_(session) {}

  // Blocks until the results are there and the arena may be used by the next call. Throws what section 7 of the
  // architecture page says. Once the op has asked for the results, they are NaN after every error but this rank's own
  // refusal, which leaves them untouched. `fixed`: the problem of a handle, from which the arguments may not differ.
  CallReport run(const Arguments& arguments, const Problem* fixed = nullptr) {
    Call call = next_call<Op>(session_, arguments);
    Checked checked = check(call, arguments, fixed);
    typename Op::Schedule schedule;
    std::chrono::steady_clock::time_point begin;
    try {
      // After all checks: a rank that has begun does not outlive the refusal of another one.
      if (!checked.has_begun) call.begin(agreed_text(checked.problem, checked.prepared->plan));
      const std::string agreed = agree(call, checked.problem, checked.prepared->plan);
      begin = std::chrono::steady_clock::now();
      call.run(hash64(agreed), [&](Epoch epoch) {
        schedule = Op::make_schedule(checked.prepared->tables, epoch, arguments, session_);
        return Op::program(schedule, checked.prepared->plan, checked.operands, arguments);
      });
    } catch (...) {
      fill_with_nan(Op::results(checked.operands));
      throw;
    }
    CallReport report = Op::report(schedule);
    report.predicted_s = checked.prepared->plan.predicted_s;
    report.plan_json = checked.prepared->plan_json;
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return report;
  }

  // What a first call does before it sends anything: plan, agreement and memory. Collective.
  Plan agree(const Problem& problem, const std::string& plan_json) {
    Call call(session_, Op::kName, mismatch_advice_of<Op>());
    std::shared_ptr<const Prepared> prepared;
    try {
      check_ranks();
      prepared = prepare(problem, plan_json);
    } catch (...) {
      refuse_for_current_exception(call, Op::kName);
    }
    call.begin(agreed_text(problem, prepared->plan));
    agree(call, problem, prepared->plan);
    call.end();
    return prepared->plan;
  }

  // So many names of plans (a plan that was chosen has two) and agreed texts are kept: then all are forgotten. All
  // ranks agree on the same texts in the same order, so they forget in the same call.
  static constexpr size_t kMostPrepared = 128, kMostAgreed = 1024;
  size_t agreed_texts() const { return agreed_.size(); }

 private:
  struct Prepared {
    Plan plan;
    std::string plan_json;
    typename Op::Tables tables;
  };
  struct Checked {
    Problem problem;
    std::shared_ptr<const Prepared> prepared;
    typename Op::Operands operands;
    bool has_begun = false;
  };

  void check_ranks() const {
    if constexpr (has_kernel<Op>()) {
      session_.check_operands_on(/*is_gpu=*/false, Op::kName);
    } else {
      session_.check_has_cpu_ranks(Op::kName);
    }
  }

  // All that this rank can do by itself, counts of other ranks aside. What it throws refuses the call.
  Checked check(Call& call, const Arguments& arguments, const Problem* fixed) {
    CountExchange counts(call, Op::kName);
    Checked checked;
    try {
      check_ranks();
      Op::check(arguments, session_);
      checked.problem = Op::make_problem(arguments, session_, counts);
      if (fixed != nullptr && checked.problem != *fixed) {
        refuse_other_problem(Op::kName, checked.problem.text(), fixed->text());
      }
      checked.prepared = prepare(checked.problem, arguments.plan_json);
      checked.operands = make_operands(arguments, checked.problem);
    } catch (...) {
      refuse_for_current_exception(call, Op::kName, counts.has_begun() ? nullptr : exchanged_of<Op>(arguments));
    }
    checked.has_begun = counts.has_begun();
    return checked;
  }

  // The memory is the caller's to give, and what it throws is the caller's; the size is the op's.
  typename Op::Operands make_operands(const Arguments& arguments, const Problem& problem) {
    try {
      return Op::make_operands(arguments, problem, session_.rank());
    } catch (const std::bad_alloc&) {
    } catch (const std::length_error&) {
    }
    throw_no_result_memory(Op::kName, Op::result_bytes(problem, session_.rank()));
  }

  std::shared_ptr<const Prepared> prepare(const Problem& problem, const std::string& plan_json) {
    const std::string text = problem.text();
    const auto found = prepared_.find(text + plan_json);
    if (found != prepared_.end()) return found->second;
    if (prepared_.size() >= kMostPrepared) prepared_.clear();
    const PlanContext context = plan_context(session_);
    Plan plan = Op::make_plan(problem, plan_json, context);
    typename Op::Tables tables = Op::make_tables(problem, plan, context);
    std::string plan_text = to_json(plan.choice);
    auto prepared =
        std::make_shared<const Prepared>(Prepared{std::move(plan), std::move(plan_text), std::move(tables)});
    prepared_.emplace(text + plan_json, prepared);
    // A handle's calls give the plan that its making has chosen.
    prepared_.emplace(text + prepared->plan_json, prepared);
    return prepared;
  }

  // What a mismatch quotes of each rank: all of it has to be equal.
  static std::string agreed_text(const Problem& problem, const Plan& plan) {
    return text_of_call(Op::kName, Op::agreed_text(problem, plan));
  }

  std::string agree(Call& call, const Problem& problem, const Plan& plan) {
    std::string text = agreed_text(problem, plan);
    call.describe(text);
    if (agreed_.count(hash64(text)) != 0) return text;
    call.agree(text, plan.half_bytes);
    if (agreed_.size() >= kMostAgreed) agreed_.clear();
    agreed_.insert(hash64(text));
    return text;
  }

  Session& session_;
  std::map<std::string, std::shared_ptr<const Prepared>> prepared_;  // by the whole problem and plan, given and chosen
  std::set<uint64_t> agreed_;  // hashes of texts that all ranks have agreed on; the op's name is in them
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
