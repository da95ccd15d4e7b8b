// The life of a call, in the order that every op has on ranks of every kind: check and refuse, or begin, agree, make ready
// and run. With it what was made ready for the problems seen so far, and what all ranks have agreed on.
//
// What kinds of ranks do differently is a back end, an object that is made of the Session: OpCalls has that of CPU ranks
// (op_call.h), DeviceCalls that of GPU ranks (device_call.h). It has the types
//   Op           the op's description (op_description.h)
//   Plan         half_bytes: what the call needs of each half; predicted_s
//   Ready        what the calls of one problem and plan share: tables, a kernel
//   Target       where a call goes: into a stream
// and the members, in the order of their use,
//   void check_ranks()                                        that ranks of this kind can make the op's calls
//   void check(const Arguments&)                              what Op::check allows and such a rank cannot do
//   std::string variant(const Arguments&)                     what of the arguments Ready depends on besides
//   Plan make_plan(const Problem&, const std::string& plan_json, const PlanContext&)    plan_json may be empty
//   std::string plan_json(const Plan&)
//   CallParts agreed(const Problem&, const Plan&)
//   Ready make_ready(const Problem&, const Plan&, const PlanContext&)                   waits for nobody
//   void settle(const Arguments&, const Problem&, const Prepared&)    may be missing: of this call alone, waits for nobody
//   void check_operands(const Operands&)
//   void await_calls()                                        until calls that are under way have ended
//   bool is_loaded(const Ready&)                              it lacks nothing that load() gives
//   void load(Prepared&, const Arguments&)                    what may be done once no call is under way
//   void note_agreed(Call&, const Prepared&)                  collective, where the text was new: the call may begin
//   CallReport run(Call&, const CheckedCall&, const Arguments&, const Target&)
//   void spoil(const Operands&)                               the call has begun and failed: what becomes of results
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/hash.h"
#include "executor/call.h"
#include "executor/count_exchange.h"
#include "executor/op_description.h"
#include "executor/prepared_calls.h"
#include "executor/session.h"
#include "planning/plan_parts.h"

namespace tilewire {

PlanContext plan_context(Session& session);

// An error of this rank's own checks, which know no rank, with it.
Error at_rank(const Error& error, Rank rank, const char* op);

// In a catch block: tells the other ranks why this one does not make the call, and throws it on, with this rank. What is no Error
// keeps its type, but for a lack of memory, which becomes Error(resource). `exchange`: that in which it is told (see
// Call::refuse_in_exchange), with the op's advice, or nullptr.
[[noreturn]] void refuse_for_current_exception(Call& call, const char* op, const char* exchange = nullptr,
                                               const char* advice = "");

// Throws Error(resource) that says how many bytes were asked for.
[[noreturn]] void throw_no_result_memory(const char* op, int64_t bytes);

// Throws Error(invalid_argument): nothing in the arguments gives memory for the results.
[[noreturn]] void throw_no_make_results(const char* op);

// Throws Error(invalid_argument) that has both texts.
[[noreturn]] void refuse_other_problem(const char* op, const std::string& problem, const std::string& fixed);

// What to do about ranks that do not make the same call.
template <class Op>
constexpr const char* mismatch_advice_of() {
  if constexpr (requires { Op::kMismatchAdvice; }) {
    return Op::kMismatchAdvice;
  } else {
    return kSameCallsAdvice;
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

// Of a problem that says more than plans depend on: shape() is what they do. All calls of a shape have one plan, and what
// else there is has to be equal on all ranks in each call.
template <class Problem>
concept HasShape = requires(const Problem& problem) {
  { problem.shape() } -> std::same_as<Problem>;
};

// What a row of calls keeps (op_call.h: Kept).
struct NothingKept {};

template <class Op>
struct KeptOf {
  using Type = NothingKept;
};
template <class Op>
requires requires { typename Op::Kept; }
struct KeptOf<Op> {
  using Type = typename Op::Kept;
};

// A call that has passed all checks of this rank.
template <class B>
struct CheckedCall {
  using Problem = typename B::Op::Problem;

  std::shared_ptr<Prepared<B>> prepared;
  std::optional<Problem> own_problem;  // where it says more than the shape, for which all is prepared
  CallTextRef text;                    // what has to be equal in this call
  uint64_t hash = 0;
  typename B::Op::Operands operands;
  bool has_begun = false;

  const Problem& problem() const { return own_problem ? *own_problem : prepared->problem; }
};

template <class B>
class CallCycle {
 public:
  using Op = typename B::Op;
  using Problem = typename Op::Problem;
  using Plan = typename B::Plan;
  using Arguments = typename Op::Arguments;

  explicit CallCycle(Session& session) : session_(session), back_end_(session) {}

  // What a first call does before it sends anything: plan, agreement and memory. Collective, always a round trip.
  Plan agree(const Problem& problem, const std::string& plan_json) {
    Call call(session_, Op::kName);
    std::shared_ptr<Prepared<B>> prepared;
    try {
      back_end_.check_ranks();
      if constexpr (HasShape<Problem>) problem.validate();
      prepared = find(shape_of(problem), "", plan_json);
    } catch (...) {
      refuse_for_current_exception(call, Op::kName);
    }
    call.begin(prepared->agreed);
    agree(call, *prepared, nullptr);
    call.end();
    return prepared->plan;
  }

  // So many agreed texts are kept: then all are forgotten. All ranks agree on the same texts in the same order, so they
  // forget in the same call.
  static constexpr size_t kMostAgreed = 1024;
  // So many names of what is ready (a plan that was chosen has two) are kept, and about so many bytes: each rank forgets by
  // itself what no call had for the longest time. What is in use may be larger.
  static constexpr size_t kMostPrepared = 256;
  static constexpr int64_t kMostPreparedBytes = B::kMostReadyBytes;
  size_t agreed_texts() const { return agreed_.size(); }
  size_t prepared_names() const { return prepared_.names(); }

 protected:
  using Checked = CheckedCall<B>;

  // What the user takes for a call: one, or a row of them.
  CallReport run_row(const Arguments& arguments, const typename B::Target& target, const Problem* fixed) {
    if constexpr (requires { typename Op::Kept; }) {
      const Session::CallRow row(session_);
      return Op::run_row(arguments, kept_, [&](const Arguments& step) { return run_call(step, target, fixed); });
    } else {
      return run_call(arguments, target, fixed);
    }
  }

  // `fixed`: the problem of a handle, from which the arguments may not differ.
  CallReport run_call(const Arguments& arguments, const typename B::Target& target, const Problem* fixed) {
    Call call = next_call(arguments);
    const Checked checked = check(call, arguments, fixed);
    const Prepared<B>& prepared = *checked.prepared;
    try {
      // After all checks: a rank that has begun does not outlive the refusal of another one.
      checked.has_begun ? call.describe(checked.text) : call.begin(checked.text);
      agree(call, *checked.prepared, &arguments);
      CallReport report = back_end_.run(call, checked, arguments, target);
      report.plan_json = prepared.plan_json;
      report.predicted_s = prepared.plan.predicted_s;
      return report;
    } catch (...) {
      back_end_.spoil(checked.operands);
      throw;
    }
  }

  // All that this rank can do by itself, counts of other ranks aside.
  Checked check_arguments(const Arguments& arguments, const Problem* fixed, CountExchange& counts) {
    back_end_.check_ranks();
    Op::check(arguments, session_);
    back_end_.check(arguments);
    const Problem problem = Op::make_problem(arguments, session_, counts);
    if (fixed != nullptr && problem != *fixed) refuse_other_problem(Op::kName, problem.text(), fixed->text());
    Checked checked;
    checked.prepared = find(shape_of(problem), back_end_.variant(arguments), arguments.plan_json);
    set_text(checked, problem);
    if constexpr (requires { back_end_.settle(arguments, problem, *checked.prepared); }) {
      back_end_.settle(arguments, problem, *checked.prepared);
    }
    checked.operands = make_operands(arguments, problem);
    back_end_.check_operands(checked.operands);
    checked.has_begun = counts.has_begun();
    return checked;
  }

  bool is_agreed(const Prepared<B>& prepared) const { return agreed_.count(prepared.agreed_hash) != 0; }

  Session& session_;
  B back_end_;

 private:
  static decltype(auto) shape_of(const Problem& problem) {
    if constexpr (HasShape<Problem>) {
      return problem.shape();
    } else {
      return (problem);
    }
  }
  void set_text(Checked& checked, const Problem& problem) {
    checked.text = checked.prepared->agreed;
    checked.hash = checked.prepared->agreed_hash;
    if constexpr (HasShape<Problem>) {
      if (problem == checked.prepared->problem) return;
      checked.own_problem = problem;
      checked.text = make_text(problem, checked.prepared->plan);
      checked.hash = checked.text->hash();
    }
  }
  CallTextRef make_text(const Problem& problem, const Plan& plan) const {
    return std::make_shared<CallText>(
        CallText{.op = Op::kName, .parts = back_end_.agreed(problem, plan), .advice = mismatch_advice_of<Op>()});
  }

  // Where another rank has ended the communicator it throws this rank's own mistake, if there is one: all ranks that
  // make it are to hear of it, however soon the first of them has left because of it.
  Call next_call(const Arguments& arguments) {
    try {
      return Call(session_, Op::kName);
    } catch (...) {
      if (session_.is_dead()) throw_own_mistake(arguments);
      throw;
    }
  }

  void throw_own_mistake(const Arguments& arguments) {
    try {
      Op::check(arguments, session_);
    } catch (const Error& error) {
      throw at_rank(error, session_.rank(), Op::kName);
    }
  }

  // What it throws refuses the call.
  Checked check(Call& call, const Arguments& arguments, const Problem* fixed) {
    CountExchange counts(call, Op::kName, mismatch_advice_of<Op>());
    try {
      return check_arguments(arguments, fixed, counts);
    } catch (...) {
      refuse_for_current_exception(call, Op::kName, counts.has_begun() ? nullptr : exchanged_of<Op>(arguments),
                                   mismatch_advice_of<Op>());
    }
  }

  // The memory is the caller's to give, and what it throws is the caller's; the size is the op's.
  typename Op::Operands make_operands(const Arguments& arguments, const Problem& problem) {
    try {
      return Op::make_operands(arguments, problem, session_.rank());
    } catch (const std::bad_function_call&) {
      throw_no_make_results(Op::kName);
    } catch (const std::bad_alloc&) {
    } catch (const std::length_error&) {
    }
    throw_no_result_memory(Op::kName, Op::result_bytes(problem, session_.rank()));
  }

  std::shared_ptr<Prepared<B>> find(const Problem& problem, const std::string& variant, const std::string& plan_json) {
    if (last_ && last_->problem == problem && last_->variant == variant && last_->given_plan == plan_json) return last_;
    const std::string name = problem.text() + variant;
    if (auto found = prepared_.find(name + plan_json)) return last_ = std::move(found);
    make_room();
    last_ = std::make_shared<Prepared<B>>(prepare(problem, variant, plan_json));
    // A handle's calls give the plan that its making has chosen.
    prepared_.add({name + plan_json, name + last_->plan_json}, last_);
    return last_;
  }

  void make_room() {
    const auto is_full = [this] {
      return !prepared_.is_empty() && (prepared_.names() >= kMostPrepared || prepared_.bytes() >= kMostPreparedBytes);
    };
    if (!is_full()) return;
    back_end_.await_calls();
    last_.reset();
    while (is_full()) prepared_.drop_oldest();
  }

  Prepared<B> prepare(const Problem& problem, const std::string& variant, const std::string& plan_json) {
    const PlanContext context = plan_context(session_);
    Plan plan = back_end_.make_plan(problem, plan_json, context);
    std::string made_json = back_end_.plan_json(plan);
    const CallTextRef agreed = make_text(problem, plan);
    typename B::Ready ready = back_end_.make_ready(problem, plan, context);
    return {.problem = problem,
            .variant = variant,
            .given_plan = plan_json,
            .plan = std::move(plan),
            .plan_json = std::move(made_json),
            .agreed = agreed,
            .agreed_hash = agreed->hash(),
            .ready = std::move(ready)};
  }

  // Collective where the text is new, and in the making of a handle, which has no `arguments`. A handle has a step of its
  // own: it sends nothing afterwards, so a rank that makes a call instead would wait for it. Memory is appended and
  // kernels are loaded while no call of this rank is under way, and where the text is new, none of any other rank that
  // waits for this call. For a handle nothing is loaded.
  void agree(Call& call, Prepared<B>& prepared, const Arguments* arguments) {
    const bool is_handle = arguments == nullptr;
    const bool is_new = !is_agreed(prepared), is_to_load = !is_handle && !back_end_.is_loaded(prepared.ready);
    if (is_new || is_to_load) back_end_.await_calls();
    if (is_new || is_handle) {
      call.agree(is_handle ? "handle" : "plan", prepared.agreed_hash, prepared.plan.half_bytes);
    }
    if (is_to_load) back_end_.load(prepared, *arguments);
    if (!is_new) return;
    back_end_.note_agreed(call, prepared);
    if (agreed_.size() >= kMostAgreed) agreed_.clear();
    agreed_.insert(prepared.agreed_hash);
  }

  PreparedCalls<B> prepared_;          // by problem, variant and plan, given and chosen
  std::shared_ptr<Prepared<B>> last_;  // of the call before
  std::set<uint64_t> agreed_;          // hashes of texts that all ranks have agreed on; the op's name is in them
  typename KeptOf<Op>::Type kept_;
};

}  // namespace tilewire
