// The life of a call on GPU ranks, as op_call.h has it for CPU ranks: check and refuse, or agree, prepare and launch. It
// returns when the kernel is in its stream. All that is slow (plan, agreement, memory, tables, loading of the kernel)
// comes with the first call of a problem: that one waits for the calls before it and for the other ranks. Later calls
// allocate nothing and wait for nobody, and may be captured in a graph.
//
// An op describes it by a struct beside its description for CPU ranks, with the types
//   Op           that one: name, Arguments, Problem (with ==), Operands and how they are checked are the same
//   Plan         half_bytes: what the call needs of each half; json: the plan as text; predicted_s
//   Kernel       what the calls of a problem, plan and variant share
// and the static members, in the order of their use,
//   KernelNames names()
//   void check(const Arguments&, Session&)                     what Op::check allows and a kernel cannot do
//   std::string variant(const Arguments&)                      what of the arguments a kernel depends on besides
//   Plan make_plan(const Problem&, const std::string& plan_json, const PlanContext&)
//   std::string agreed_text(const Problem&, const Plan&)       as Op's
//   void check_operands(const Operands&)
//   std::shared_ptr<Kernel> make_kernel(const Problem&, const Plan&, const PlanContext&, const DeviceRank&, const
//                                       Arguments&)
//   CallReport report(const Problem&, const Plan&, const PlanContext&)      bytes
//   void launch(const Kernel&, uint64_t agreed_hash, const Operands&, void* stream)
// make_kernel and launch find the rank's GPU current.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "executor/op_call.h"

namespace tilewire {

// Throws Error(invalid_argument) for a capture of a call that the ranks have not agreed on.
[[noreturn]] void refuse_capture(const char* op, const std::string& problem);

template <class D>
class DeviceCalls {
 public:
  using Op = typename D::Op;
  static_assert(has_kernel<Op>(), "an op with a kernel may not say that it has none");
  using Problem = typename Op::Problem;
  using Plan = typename D::Plan;
  using Arguments = typename Op::Arguments;

  explicit DeviceCalls(Session& session) : session_(session) {}

  // Puts the call behind those before it, whatever their streams were, and into `stream`, a cudaStream_t. Throws what a
  // call on CPU ranks throws, as far as it is known when the call is launched; what comes later is thrown by the next
  // call, check(), synchronize() or close() of the communicator. Then results are NaN where they are not finished.
  // `fixed`: the problem of a handle.
  CallReport run(const Arguments& arguments, void* stream, const Problem* fixed = nullptr) {
    if (session_.gpu() != nullptr && session_.gpu()->is_capturing(stream)) return capture(arguments, stream, fixed);
    Call call = next_call<Op>(session_, arguments);
    const Checked checked = check(call, arguments, fixed);
    if (!checked.has_begun) call.begin(checked.ready->description);
    prepare(call, *checked.ready, arguments);
    call.launch([&] {
      session_.gpu()->before_launch(stream);
      launch(*checked.ready, checked.operands, stream);
      session_.gpu()->after_launch(stream);
    });
    return checked.ready->report;
  }

  // What a first call does before it makes its kernel ready: plan, agreement and memory. Collective.
  Plan agree(const Problem& problem, const std::string& plan_json) {
    Call call(session_, Op::kName, mismatch_advice_of<Op>());
    Ready ready;
    try {
      session_.check_operands_on(/*is_gpu=*/true, Op::kName);
      fill(ready, problem, plan_json);
    } catch (...) {
      refuse_for_current_exception(call, Op::kName);
    }
    call.begin(ready.description);
    agree(call, ready, [] {});
    call.end();
    return ready.plan;
  }

  // How many problems are kept with their kernels, and agreed texts; then all are forgotten. See OpCalls.
  static constexpr size_t kMostReady = 128, kMostAgreed = 1024;

 private:
  struct Ready {
    Problem problem;
    std::string variant, given_plan;
    Plan plan;
    std::string description;  // text_of_call of the problem
    std::string agreed_text;
    uint64_t agreed_hash = 0;
    CallReport report;
    std::shared_ptr<const typename D::Kernel> kernel;  // null until the first call
    bool is_captured = false;
  };
  struct Checked {
    std::shared_ptr<Ready> ready;
    typename Op::Operands operands;
    bool has_begun = false;
  };

  Checked check(Call& call, const Arguments& arguments, const Problem* fixed) {
    CountExchange counts(call, Op::kName);
    Checked checked;
    try {
      checked = check_arguments(arguments, fixed, counts);
    } catch (...) {
      refuse_for_current_exception(call, Op::kName, counts.has_begun() ? nullptr : exchanged_of<Op>(arguments));
    }
    checked.has_begun = counts.has_begun();
    return checked;
  }

  Checked check_arguments(const Arguments& arguments, const Problem* fixed, CountExchange& counts) {
    session_.check_operands_on(/*is_gpu=*/true, Op::kName);
    Op::check(arguments, session_);
    D::check(arguments, session_);
    const Problem problem = Op::make_problem(arguments, session_, counts);
    if (fixed != nullptr && problem != *fixed && problem.text() != fixed->text()) {
      refuse_other_problem(Op::kName, problem.text(), fixed->text());
    }
    Checked checked;
    checked.ready = find(problem, arguments);
    checked.operands = Op::make_operands(arguments, problem, session_.rank());
    D::check_operands(checked.operands);
    return checked;
  }

  std::shared_ptr<Ready> find(const Problem& problem, const Arguments& arguments) {
    const std::string variant = D::variant(arguments);
    if (last_ && last_->problem == problem && last_->variant == variant && last_->given_plan == arguments.plan_json) {
      return last_;
    }
    const std::string key = problem.text() + variant + arguments.plan_json;
    const auto found = ready_.find(key);
    if (found != ready_.end()) return last_ = found->second;
    if (ready_.size() >= kMostReady) forget();
    auto made = std::make_shared<Ready>();
    fill(*made, problem, arguments.plan_json);
    made->variant = variant;
    made->given_plan = arguments.plan_json;
    ready_.emplace(key, made);
    return last_ = made;
  }

  void fill(Ready& ready, const Problem& problem, const std::string& plan_json) const {
    const PlanContext context = plan_context(session_);
    ready.problem = problem;
    ready.plan = D::make_plan(problem, plan_json, context);
    ready.description = text_of_call(Op::kName, problem.text());
    ready.agreed_text = text_of_call(Op::kName, D::agreed_text(problem, ready.plan));
    ready.agreed_hash = hash64(ready.agreed_text);
    ready.report = D::report(problem, ready.plan, context);
    ready.report.plan_json = ready.plan.json;
    ready.report.predicted_s = ready.plan.predicted_s;
  }

  // Kernels that wait use what is forgotten; graphs use it for ever.
  void forget() {
    session_.wait_for_gpu();
    for (const auto& [key, ready] : ready_) {
      if (ready->is_captured) captured_.push_back(ready);
    }
    ready_.clear();
    last_.reset();
  }

  void prepare(Call& call, Ready& ready, const Arguments& arguments) {
    if (ready.kernel && agreed_.count(ready.agreed_hash) != 0) return;
    agree(call, ready, [&] {
      if (!ready.kernel) make_kernel(ready, arguments);
    });
  }

  // Collective where the text is new. Nothing is allocated or loaded while a kernel of this rank waits, and where the
  // text is new while one of any other waits for this call.
  template <class MakeReady>
  void agree(Call& call, const Ready& ready, const MakeReady& make_ready) {
    const bool is_new = agreed_.count(ready.agreed_hash) == 0;
    call.describe(ready.agreed_text);
    session_.wait_for_gpu();
    if (is_new) call.agree(ready.agreed_text, ready.plan.half_bytes);
    try {
      make_ready();
    } catch (const Error& error) {
      session_.fail(error.kind(), "rank " + std::to_string(session_.rank().value) + ": " + error.what());
    }
    if (!is_new) return;
    call.await_ready(ready.agreed_hash);
    if (agreed_.size() >= kMostAgreed) agreed_.clear();
    agreed_.insert(ready.agreed_hash);
    session_.kernel_faults().add_text(ready.agreed_hash, ready.agreed_text);
  }

  void make_kernel(Ready& ready, const Arguments& arguments) {
    session_.gpu()->with_context([&] {
      ready.kernel = D::make_kernel(ready.problem, ready.plan, plan_context(session_), session_.device_rank(D::names()),
                                    arguments);
    });
  }

  void launch(const Ready& ready, const typename Op::Operands& operands, void* stream) {
    session_.gpu()->with_context([&] { D::launch(*ready.kernel, ready.agreed_hash, operands, stream); });
  }

  // The graph is no call yet: its replays are, and the host does not see them. They are in order with other calls where
  // they share a stream with them.
  CallReport capture(const Arguments& arguments, void* stream, const Problem* fixed) {
    const Session::CallGuard guard(session_);
    session_.throw_if_dead();
    CountExchange none(Op::kName);
    const Checked checked = check_arguments(arguments, fixed, none);
    Ready& ready = *checked.ready;
    if (!ready.kernel || agreed_.count(ready.agreed_hash) == 0) refuse_capture(Op::kName, ready.problem.text());
    launch(ready, checked.operands, stream);
    ready.is_captured = true;
    return ready.report;
  }

  Session& session_;
  std::map<std::string, std::shared_ptr<Ready>> ready_;  // by the whole problem, variant and given plan
  std::shared_ptr<Ready> last_;                          // of the call before
  std::vector<std::shared_ptr<Ready>> captured_;         // forgotten, but for graphs
  std::set<uint64_t> agreed_;
};

// A list of such descriptions (ops/device_op_list.h), and the objects that a communicator has of them, one each.
template <class... D>
struct DeviceOpTypes {};

template <class List>
class DeviceOpObjects;

template <class... D>
class DeviceOpObjects<DeviceOpTypes<D...>> {
 public:
  explicit DeviceOpObjects(Session& session) : calls_(DeviceCalls<D>(session)...) {}

  template <class One>
  DeviceCalls<One>& get() {
    return std::get<DeviceCalls<One>>(calls_);
  }

 private:
  std::tuple<DeviceCalls<D>...> calls_;
};

}  // namespace tilewire
