#include "ops/ag_gemm/ag_gemm.h"

#include <fmt/format.h>

#include <chrono>

#include "base/bytes.h"
#include "ops/ag_gemm/arguments_check.h"
#include "ops/ag_gemm/results_fill.h"
#include "schedule/hash.h"

namespace tilewire::ag_gemm {
namespace {

constexpr const char* kOp = "all_gather_matmul";
constexpr size_t kMostPrepared = 64;

void check_fixed(const Problem& problem, const Problem& fixed) {
  if (problem.text() == fixed.text()) return;
  throw Error(ErrorKind::invalid_argument, {.what = "the operands do not fit the handle",
                                            .where = kOp,
                                            .values = problem.text(),
                                            .limit = "made for " + fixed.text(),
                                            .advice = "make a handle for these shapes"});
}

}  // namespace

PlanContext Operation::context() const {
  return {.topology = session_.topology(),
          .me = session_.rank(),
          .arena = session_.arena().layout(),
          .machine = session_.machine(),
          .workers = session_.workers()};
}

Report Operation::run(const Arguments& arguments, const Problem* fixed) {
  Call call(session_, kOp);
  Problem problem;
  Prepared* prepared = nullptr;
  HostOperands operands;
  try {
    check_arguments(arguments, session_.topology().ranks, session_.rank());
    problem = make_problem(arguments, arguments.rows.counts);
    const bool exchanges = arguments.rows.policy == Rows::Policy::exchange;
    if (exchanges) {
      call.begin(problem.text() + " (own rows; counts are exchanged)");
      problem = make_problem(arguments, call.exchange("row counts", arguments.a.rows));
    }
    if (fixed != nullptr) check_fixed(problem, *fixed);
    prepared = &prepare(problem, arguments.plan_json);
    operands = make_operands(arguments, problem);
    // After all checks: a rank that has begun does not outlive the refusal of another one.
    if (!exchanges) call.begin(problem.text());
  } catch (const Error& error) {
    call.refuse(error);
    throw;
  }
  agree(call, problem, prepared->plan);
  const uint64_t hash = hash64(agreed_text(problem, prepared->plan.choice));
  const auto begin = std::chrono::steady_clock::now();
  Schedule schedule;
  try {
    call.run(hash, [&](Epoch epoch) {
      schedule = prepared->tables->schedule(epoch);
      place_input(schedule, arguments.a);
      return host_program(schedule, prepared->plan.choice.cursors, operands,
                          arguments.stand_in ? &arguments.stand_in : nullptr);
    });
  } catch (...) {
    fill_results_with_nan(operands);
    throw;
  }
  Report report = describe(problem, *prepared, schedule);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

void Operation::agree(Call& call, const Problem& problem, const Plan& plan) {
  const std::string text = agreed_text(problem, plan.choice);
  call.describe(text);
  if (agreed_.count(hash64(text)) != 0) return;
  call.agree(text, plan.half_bytes);
  agreed_.insert(hash64(text));
}

Plan Operation::agree(const Problem& problem, const std::string& plan_json) {
  Call call(session_, kOp);
  Prepared* prepared = nullptr;
  try {
    prepared = &prepare(problem, plan_json);
    call.begin(problem.text());
  } catch (const Error& error) {
    call.refuse(error);
    throw;
  }
  agree(call, problem, prepared->plan);
  call.end();
  return prepared->plan;
}

Problem Operation::make_problem(const Arguments& arguments, const std::vector<int64_t>& rows) const {
  Problem problem;
  problem.rows = rows.empty() ? std::vector<int64_t>(session_.topology().ranks, arguments.a.rows) : rows;
  problem.k = arguments.a.cols;
  problem.dtype = arguments.a.dtype;
  problem.out_dtype = arguments.out_dtype;
  problem.wants_gathered = arguments.wants_gathered;
  for (const MatrixView& b : arguments.b) problem.cols.push_back(b.cols);
  problem.validate();
  return problem;
}

Operation::Prepared& Operation::prepare(const Problem& problem, const std::string& plan_json) {
  const std::string key = problem.text() + plan_json;
  const auto found = prepared_.find(key);
  if (found != prepared_.end()) return found->second;
  if (prepared_.size() >= kMostPrepared) prepared_.clear();
  Prepared made;
  made.plan =
      plan_json.empty() ? make_plan(problem, context()) : check_plan(plan_from_json(plan_json), problem, context());
  made.tables = std::make_unique<ScheduleTables>(problem, made.plan.choice, context());
  return prepared_.emplace(key, std::move(made)).first->second;
}

// A shard that lies in the user area in the layout of the gathered buffer is sent from where it is.
void Operation::place_input(Schedule& schedule, const MatrixView& a) const {
  const int64_t element = size_bytes(a.dtype);
  const bool has_pitch = a.has_contiguous_rows() &&
                         (a.rows <= 1 || a.row_stride * element == schedule.buffers.pitch_bytes) &&
                         a.cols * element == schedule.buffers.pitch_bytes;
  const int64_t offset = session_.arena().user_area_offset(a.data);
  if (!has_pitch || offset < 0 || a.rows == 0) return;
  const int64_t in_user = offset - session_.arena().layout().user_offset();
  if (in_user % kWireUnitBytes != 0) return;
  schedule.own_in_user = true;
  schedule.user_offset = in_user;
}

Report Operation::describe(const Problem& problem, const Prepared& prepared, const Schedule& s) const {
  Report report;
  report.problem = problem;
  report.plan = prepared.plan;
  CopyWork copy;
  for (PushRole push(s); push.next(copy);) {
    (copy.to == s.me() ? report.copy_bytes : report.node_bytes) += s.bytes(copy.chunk);
  }
  for (ForwardRole forward(s); forward.next(copy);) report.node_bytes += s.bytes(copy.chunk);
  SendWork send;
  for (SendRole role(s); role.next(send);) report.network_bytes += int64_t{send.command.units} * kWireUnitBytes;
  return report;
}

}  // namespace tilewire::ag_gemm
