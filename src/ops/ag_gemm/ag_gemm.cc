#include "ops/ag_gemm/ag_gemm.h"

#include "executor/matrix_copy.h"
#include "ops/ag_gemm/arguments_check.h"

namespace tilewire::ag_gemm {
namespace {

Problem problem_of(const Arguments& arguments, const std::vector<int64_t>& rows) {
  Problem problem{.rows = rows,
                  .k = arguments.a.cols,
                  .dtype = arguments.a.dtype,
                  .cols = cols_of(arguments),
                  .out_dtype = arguments.out_dtype,
                  .wants_gathered = arguments.wants_gathered};
  problem.validate();
  return problem;
}

}  // namespace

void Op::check(const Arguments& arguments, Session& session) { check_arguments(arguments, session); }

Problem Op::make_problem(const Arguments& arguments, Session& session, CountExchange& counts) {
  return problem_of_rows(arguments.rows, arguments.a.rows, session, counts,
                         [&](const std::vector<int64_t>& rows) { return problem_of(arguments, rows); });
}

HostOperands Op::make_operands(const Arguments& arguments, const Problem& problem, Rank) {
  return ag_gemm::make_operands(arguments, problem);
}

// A shard that lies in the user area in the layout of the gathered buffer is sent from where it is.
Schedule Op::make_schedule(const Tables& tables, Epoch epoch, const Arguments& arguments, Session& session) {
  Schedule schedule = tables.schedule(epoch);
  const auto offset = packed_in_user_area(arguments.a, schedule.buffers.pitch_bytes, session.arena());
  schedule.own_in_user = offset.has_value();
  schedule.user_offset = offset.value_or(0);
  return schedule;
}

// Copied are rows into the own gathered buffer; local peers get the own shard and forwarded ones; the network counts
// what the proxy was given.
CallReport Op::report(const Schedule& s) {
  CallReport report;
  CopyWork copy;
  for (int32_t worker = 0; worker < s.push_workers; ++worker) {
    for (PushRole push(s, worker); push.next(copy);) {
      (copy.to == s.me() ? report.copy_bytes : report.node_bytes) += s.bytes(copy.chunk);
    }
  }
  for (int32_t worker = 0; worker < s.forward_workers; ++worker) {
    for (ForwardRole forward(s, worker); forward.next(copy);) report.node_bytes += s.bytes(copy.chunk);
  }
  SendWork send;
  for (SendRole role(s); role.next(send);) report.network_bytes += int64_t{send.command.units} * kWireUnitBytes;
  return report;
}

}  // namespace tilewire::ag_gemm
