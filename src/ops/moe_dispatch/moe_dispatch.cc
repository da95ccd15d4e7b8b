#include "ops/moe_dispatch/moe_dispatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "operands/matrix_checks.h"
#include "ops/moe_dispatch/arguments_check.h"

namespace tilewire::moe_dispatch {
namespace {

int64_t most_of(const std::vector<int64_t>& counts) {
  return counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
}

}  // namespace

Error overflow_error(Rank of, int64_t rows, int64_t most) {
  return Error(ErrorKind::resource, {.what = "a rank gets more rows than max_tokens",
                                     .where = kCallName,
                                     .values = fmt::format("rank {} gets {} rows", of.value, rows),
                                     .limit = fmt::format("max_tokens = {}", most),
                                     .advice = "raise max_tokens on all ranks, or leave it out; nothing was moved, the "
                                               "result is NaN and the communicator can be used"});
}

void Op::check(const Arguments& arguments, Session& session) {
  check_arguments(arguments, session.rank(), session.topology().ranks, session.gpu() == nullptr);
}

Problem Op::make_problem(const Arguments& args, Session& session, CountExchange&) {
  Problem p{.rank_of_expert = placement(args, session.topology().ranks),
            .h = args.x.cols,
            .top_k = args.routes.top_k,
            .dtype = args.x.dtype,
            .counts_only = args.counts_only,
            .cols = args.cols,
            .out_dtype = args.out_dtype};
  if (args.counted) {
    p.most_rows = rounded_size(most_of(args.counted->rows));
    p.result_rows = args.counted->rows[static_cast<size_t>(session.rank().value)];
    p.most_tokens = p.planned_tokens = rounded_size(most_of(args.counted->tokens));
  } else if (args.max_tokens) {
    p = limited_problem(std::move(p), *args.max_tokens, args.max_source_tokens);
  } else if (!args.counts_only) {  // no step of a row of calls
    refuse_argument(kCallName, "rows cannot be counted in a graph", "max_tokens was not given",
                    "how many a rank may get",
                    "pass max_tokens= to calls that are captured, and to the call before the capture");
  }
  p.validate();
  return p;
}

HostOperands Op::make_operands(const Arguments& arguments, const Problem& problem, Rank) {
  return moe_dispatch::make_operands(arguments, problem);
}

Schedule Op::make_schedule(const Tables& tables, Epoch epoch, const Arguments& arguments, Session& session) {
  Schedule schedule = tables.schedule(epoch);
  std::byte* half = session.arena().base() + session.arena().layout().half_offset(epoch);
  schedule.routing = place_routing(half + schedule.buffers.tables_offset(), schedule.buffers.tables);
  schedule.tokens = arguments.x.rows;
  return schedule;
}

// Rows and records that were written, by whose memory they were written into; the network counts what the proxy was
// given.
CallReport Op::report(const Schedule& s) {
  if (!s.counts_only && s.routing->overflow_rank.value >= 0) {
    throw overflow_error(s.routing->overflow_rank, s.routing->overflow_rows, s.routing->most_rows);
  }
  CallReport report;
  const int64_t row_bytes = s.buffers.row_pitch;
  const auto rows_of = [&](Rank source, Rank to, int32_t round, int32_t piece) {
    const int32_t local = s.topology().local(to).value, position = s.position_of[source.value];
    return s.routing->piece_rows[((int64_t{round} * s.width() + local) * s.pieces + piece) * s.ranks() + position];
  };
  const auto record_bytes = [&](Rank of) { return s.record_bytes(s.rounds_of_tokens(s.routing->tokens_of[of.value])); };
  report.node_bytes += (s.width() - 1) * record_bytes(s.me());
  PushWork push;
  for (PushRole role(s); role.next(push);) {
    if (push.is_gate) continue;
    const int64_t bytes = rows_of(s.me(), push.to, push.round, push.piece) * row_bytes;
    (push.to == s.me() ? report.copy_bytes : report.node_bytes) += bytes;
  }
  if (!s.frame.has_network()) return report;
  PackWork pack;
  for (PackRole role(s); role.next(pack);) report.copy_bytes += pack.tokens.rows() * s.buffers.token_pitch;
  ForwardWork forward;
  for (ForwardRole role(s); role.next(forward);) {
    if (forward.is_record) report.node_bytes += record_bytes(forward.source);
    if (!forward.is_last) continue;
    for (int32_t local = 0; local < s.width(); ++local) {
      for (int32_t piece = 0; piece < s.pieces; ++piece) {
        const Rank to = s.local(local);
        const int64_t bytes = rows_of(forward.source, to, forward.round, piece) * row_bytes;
        (to == s.me() ? report.copy_bytes : report.node_bytes) += bytes;
      }
    }
  }
  SendWork send;
  for (SendRole role(s); role.next(send);) report.network_bytes += int64_t{send.command.units} * kWireUnitBytes;
  return report;
}

}  // namespace tilewire::moe_dispatch
