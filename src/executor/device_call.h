// The calls of an op on GPU ranks, whose life is that of call_cycle.h: kernels instead of roles, and a call returns when
// its kernel is in its stream. All that is slow (plan, agreement, memory, tables, loading of the kernel) comes with the
// first call of a problem: that one waits for the calls before it and for the other ranks. Later calls allocate nothing
// and may be captured in a graph. They wait for nobody, but for their own kernel where the host reads what it finds,
// for a room where what is the call's own is kept in rooms (attention/device_sight.cuh), and behind a call that this rank
// has refused for the others to refuse it too.
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
//   CallParts agreed(const Problem&, const Plan&)              as Op's
//   void check_operands(const Operands&)
//   std::shared_ptr<Kernel> make_kernel(const Problem&, const Plan&, const PlanContext&, const DeviceRank&, const
//                                       Arguments&)
//   int64_t bytes(const Kernel&)                               of device memory, where that is worth a bound
//   CallReport report(const Problem&, const Plan&, const PlanContext&)      bytes
//   void launch(const Kernel&, uint64_t agreed_hash, const Operands&, void* stream)
// and, where the host reads what some calls find out, which then wait for their kernels,
//   bool is_read(const Operands&)                              whether this is such a call
//   void read(const Kernel&, const Operands&)                  behind its kernel
// make_kernel, launch and read find the rank's GPU current.
//
// Where problems say more than their shape, for which kernels are made, report is missing, and these two are
//   void check_problem(const Problem&)                         what a kernel cannot do of the call's own part
//   CallReport launch(const Kernel&, uint64_t agreed_hash, const Problem&, const Operands&, void* stream)
// which refuses a capture of a problem that no call has had before.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "executor/call_cycle.h"

namespace tilewire {

// Throws Error(invalid_argument) for a capture of a call that the ranks have not agreed on.
[[noreturn]] void refuse_capture(const char* op, const std::string& problem);

template <class D>
class DeviceBackEnd {
 public:
  using Op = typename D::Op;
  static_assert(has_kernel<Op>(), "an op with a kernel may not say that it has none");
  using Problem = typename Op::Problem;
  using Plan = typename D::Plan;
  using Operands = typename Op::Operands;
  using Arguments = typename Op::Arguments;
  struct Ready {
    CallReport report;
    std::shared_ptr<const typename D::Kernel> kernel;  // null until the first call
    int64_t bytes() const {
      if constexpr (requires { D::bytes(*kernel); }) return kernel != nullptr ? D::bytes(*kernel) : 0;
      return 0;
    }
  };
  static constexpr int64_t kMostReadyBytes = int64_t{1} << 30;  // of the GPU's memory
  struct Target {
    void* stream = nullptr;
  };

  explicit DeviceBackEnd(Session& session) : session_(session) {}

  void check_ranks() const { session_.check_operands_on(/*is_gpu=*/true, Op::kName); }
  void check(const Arguments& arguments) const { D::check(arguments, session_); }
  std::string variant(const Arguments& arguments) const { return D::variant(arguments); }
  Plan make_plan(const Problem& problem, const std::string& plan_json, const PlanContext& context) const {
    return D::make_plan(problem, plan_json, context);
  }
  std::string plan_json(const Plan& plan) const { return plan.json; }
  CallParts agreed(const Problem& problem, const Plan& plan) const { return D::agreed(problem, plan); }
  Ready make_ready(const Problem& problem, const Plan& plan, const PlanContext& context) const {
    if constexpr (HasShape<Problem>) {
      return {};
    } else {
      return {D::report(problem, plan, context), nullptr};
    }
  }
  void settle(const Arguments&, const Problem& problem,
              const Prepared<DeviceBackEnd>&) const requires HasShape<Problem> {
    D::check_problem(problem);
  }
  void check_operands(const Operands& operands) const { D::check_operands(operands); }
  // Kernels that wait use what is forgotten or appended to.
  void await_calls() const { session_.wait_for_gpu(); }
  bool is_loaded(const Ready& ready) const { return ready.kernel != nullptr; }

  void load(Prepared<DeviceBackEnd>& prepared, const Arguments& arguments) const {
    try {
      session_.gpu()->with_context([&] {
        prepared.ready.kernel = D::make_kernel(prepared.problem, prepared.plan, plan_context(session_),
                                               session_.device_rank(D::names()), arguments);
      });
    } catch (const Error& error) {
      fail(error.kind(), error.what());
    }
  }
  void note_agreed(Call& call, const Prepared<DeviceBackEnd>& prepared) const {
    call.await_ready(prepared.agreed_hash);
    session_.kernel_faults().add_text(prepared.agreed_hash, prepared.agreed);
  }

  CallReport run(Call& call, const CheckedCall<DeviceBackEnd>& checked, const Arguments&, const Target& target) const {
    CallReport report;
    call.launch([&] {
      session_.gpu()->before_launch(target.stream);
      report = launch(checked, target.stream);
      session_.gpu()->after_launch(target.stream);
    });
    if constexpr (requires { D::is_read(checked.operands); }) {
      if (D::is_read(checked.operands)) read(*checked.prepared->ready.kernel, checked.operands);
    }
    return report;
  }
  CallReport launch(const CheckedCall<DeviceBackEnd>& checked, void* stream) const {
    const Prepared<DeviceBackEnd>& prepared = *checked.prepared;
    CallReport report = prepared.ready.report;
    session_.gpu()->with_context([&] {
      if constexpr (HasShape<Problem>) {
        if (checked.own_problem) session_.kernel_faults().add_call_text(checked.hash, checked.text);
        report = D::launch(*prepared.ready.kernel, checked.hash, checked.problem(), checked.operands, stream);
      } else {
        D::launch(*prepared.ready.kernel, checked.hash, checked.operands, stream);
      }
    });
    return report;
  }
  // The others go on: what is wrong here alone ends the communicator.
  void read(const typename D::Kernel& kernel, const Operands& operands) const {
    try {
      session_.wait_for_gpu();
      session_.throw_if_given_up();
      session_.gpu()->with_context([&] { D::read(kernel, operands); });
    } catch (const Error& error) {
      fail(error.kind(), error.what());
    } catch (const std::exception& error) {
      fail(ErrorKind::internal, error.what());
    }
  }
  // A kernel that gives up makes results NaN itself.
  void spoil(const Operands&) const {}

 private:
  [[noreturn]] void fail(ErrorKind kind, const char* text) const {
    session_.fail(kind, "rank " + std::to_string(session_.rank().value) + ": " + text);
  }

  Session& session_;
};

template <class D>
class DeviceCalls : public CallCycle<DeviceBackEnd<D>> {
  using Cycle = CallCycle<DeviceBackEnd<D>>;

 public:
  using Cycle::Cycle;
  using typename Cycle::Arguments;
  using typename Cycle::Op;
  using typename Cycle::Problem;

  // Puts the call behind those before it, whatever their streams were, and into `stream`, a cudaStream_t. Throws what a
  // call on CPU ranks throws, as far as it is known when the call is launched; what comes later is thrown by the next
  // call, check(), synchronize() or close() of the communicator. Then results are NaN where they are not finished.
  // `fixed`: the problem of a handle.
  CallReport run(const Arguments& arguments, void* stream, const Problem* fixed = nullptr) {
    GpuRank* gpu = this->session_.gpu();
    if (gpu != nullptr && gpu->is_capturing(stream)) return capture(arguments, stream, fixed);
    return this->run_row(arguments, {stream}, fixed);
  }

 private:
  // The graph is no call yet: its replays are, and the host does not see them. They are in order with other calls where
  // they share a stream with them.
  CallReport capture(const Arguments& arguments, void* stream, const Problem* fixed) {
    const Session::CallGuard guard(this->session_);
    this->session_.throw_if_dead();
    CountExchange none(Op::kName);
    const auto checked = this->check_arguments(arguments, fixed, none);
    const auto& prepared = *checked.prepared;
    if (!this->back_end_.is_loaded(prepared.ready) || !this->is_agreed(prepared)) {
      refuse_capture(Op::kName, prepared.problem.text());
    }
    CallReport report = this->back_end_.launch(checked, stream);
    if (checked.own_problem) this->session_.kernel_faults().add_text(checked.hash, checked.text);
    captured_.insert(checked.prepared);
    report.plan_json = prepared.plan_json;
    report.predicted_s = prepared.plan.predicted_s;
    return report;
  }

  std::set<std::shared_ptr<const Prepared<DeviceBackEnd<D>>>> captured_;  // graphs use them for ever
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
