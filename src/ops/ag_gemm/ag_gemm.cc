#include "ops/ag_gemm/ag_gemm.h"

#include "ops/ag_gemm/arguments_check.h"

namespace tilewire::ag_gemm {
namespace {

Problem problem_of(const Arguments& arguments, const std::vector<int64_t>& rows) {
  Problem problem;
  problem.rows = rows;
  problem.k = arguments.a.cols;
  problem.dtype = arguments.a.dtype;
  problem.out_dtype = arguments.out_dtype;
  problem.wants_gathered = arguments.wants_gathered;
  for (const MatrixView& b : arguments.b) problem.cols.push_back(b.cols);
  problem.validate();
  return problem;
}

// A shard that lies in the user area in the layout of the gathered buffer is sent from where it is.
void place_input(Schedule& schedule, const MatrixView& a, Arena& arena) {
  const int64_t element = size_bytes(a.dtype);
  const bool has_pitch = a.has_contiguous_rows() &&
                         (a.rows <= 1 || a.row_stride * element == schedule.buffers.pitch_bytes) &&
                         a.cols * element == schedule.buffers.pitch_bytes;
  const int64_t offset = arena.user_area_offset(a.data);
  if (!has_pitch || offset < 0 || a.rows == 0) return;
  const int64_t in_user = offset - arena.layout().user_offset();
  if (in_user % kWireUnitBytes != 0) return;
  schedule.own_in_user = true;
  schedule.user_offset = in_user;
}

}  // namespace

void Op::check(const Arguments& arguments, Session& session) {
  check_arguments(arguments, session.topology().ranks, session.rank());
}

Problem Op::make_problem(const Arguments& arguments, Session& session, CountExchange& counts) {
  if (arguments.rows.from == RowCounts::From::list) return problem_of(arguments, arguments.rows.counts);
  const std::vector<int64_t> same(session.topology().ranks, arguments.a.rows);
  Problem problem = problem_of(arguments, same);
  if (arguments.rows.from == RowCounts::From::same) return problem;
  return problem_of(
      arguments, counts.exchange("row counts", arguments.a.rows, problem.text() + " (own rows; counts are exchanged)"));
}

Plan Op::make_plan(const Problem& problem, const std::string& plan_json, const PlanContext& context) {
  return plan_of(problem, plan_json, context);
}

ScheduleTables Op::make_tables(const Problem& problem, const Plan& plan, const PlanContext& context) {
  return ScheduleTables(problem, plan.choice, context);
}

HostOperands Op::make_operands(const Arguments& arguments, const Problem& problem) {
  return ag_gemm::make_operands(arguments, problem);
}

int64_t Op::result_bytes(const Problem& problem) { return problem.result_bytes(); }

std::vector<MatrixView> Op::results(const Operands& operands) {
  std::vector<MatrixView> results = operands.out;
  results.push_back(operands.gathered);
  return results;
}

std::string Op::agreed_text(const Problem& problem, const Plan& plan) {
  return ag_gemm::agreed_text(problem, plan.choice);
}

Schedule Op::make_schedule(const Tables& tables, Epoch epoch, const Arguments& arguments, Session& session) {
  Schedule schedule = tables.schedule(epoch);
  place_input(schedule, arguments.a, session.arena());
  return schedule;
}

Call::Program Op::program(const Schedule& schedule, const Plan& plan, const Operands& operands,
                          const Arguments& arguments) {
  return host_program(schedule, plan.choice.cursors, operands, arguments.stand_in ? &arguments.stand_in : nullptr);
}

// Copied are rows into the own gathered buffer; local peers get the own shard and forwarded ones; the network counts
// what the proxy was given.
CallReport Op::report(const Schedule& s) {
  CallReport report;
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
