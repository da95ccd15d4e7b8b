#include "ops/gemm_rs/gemm_rs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "executor/matrix_checks.h"
#include "executor/matrix_copy.h"
#include "executor/row_counts.h"

namespace tilewire::gemm_rs {
namespace {

void check_rows(const Arguments& args, const Session& session) {
  if (args.rows.from == RowCounts::From::exchange) {
    refuse_argument(kCallName, "there are no row counts to exchange", "rows = \"exchange\"",
                    "all ranks bring the same rows: leave rows out, or pass a list of what each is to get");
  }
  if (args.rows.from != RowCounts::From::list) return;
  check_row_counts(kCallName, args.rows.counts, session.topology().ranks);
  const int64_t total = sum_of(args.rows.counts);
  if (total != args.a.rows) {
    refuse_argument(
        kCallName, "rows does not fit a",
        fmt::format("a has {} rows, rows = [{}], {} in all", args.a.rows, fmt::join(args.rows.counts, ", "), total),
        "must be as many in all");
  }
}

std::vector<NamedMatrix> all_read(const Arguments& args) {
  std::vector<NamedMatrix> read = read_matrices(args);
  if (args.residual) read.push_back({"residual", *args.residual});
  return read;
}

void check_residual(const MatrixView& residual, int64_t rows, int64_t cols) {
  check_memory(kCallName, {"residual", residual});
  if (residual.rows == rows && residual.cols == cols) return;
  refuse_argument(kCallName, "residual has the wrong shape", "residual is " + shape_text(residual),
                  fmt::format("[{}, {}]: the rows that this rank gets", rows, cols));
}

// `a` with contiguous rows, copied where the caller's has none.
void pack_a(HostOperands& operands) {
  MatrixView& a = operands.a;
  if (a.has_contiguous_rows() || a.rows == 0) return;
  const int64_t pitch_bytes = a.cols * size_bytes(a.dtype);
  operands.packed = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(a.rows * pitch_bytes));
  pack_rows(a, 0, a.rows, {.to = operands.packed->data(), .pitch_bytes = pitch_bytes});
  a.data = operands.packed->data();
  a.row_stride = a.cols;
  a.col_stride = 1;
}

}  // namespace

void Op::check(const Arguments& args, Session& session) {
  if (args.b.size() != 1) {
    refuse_argument(kCallName, "wrong number of weights", fmt::format("{} weights", args.b.size()), "one in a call");
  }
  check_operands(kCallName, args);
  check_rows(args, session);
}

Problem Op::make_problem(const Arguments& args, Session& session, CountExchange&) {
  Problem problem{.rows = args.rows.from == RowCounts::From::list ? args.rows.counts
                                                                  : dealt_rows(args.a.rows, session.topology().ranks),
                  .n = args.b[0].cols,
                  .dtype = args.a.dtype,
                  .wire_dtype = args.wire_dtype.value_or(args.a.dtype),
                  .k = args.a.cols,
                  .out_dtype = args.out_dtype,
                  .me = session.rank()};
  problem.validate();
  return problem;
}

HostOperands Op::make_operands(const Arguments& args, const Problem& problem, Rank me) {
  const int64_t rows = problem.rows[static_cast<size_t>(me.value)];
  if (args.residual) check_residual(*args.residual, rows, problem.n);
  HostOperands operands{args, args.residual, args.make_results(problem), wire_types(problem.wire_dtype), nullptr};
  check_no_overlap(kCallName, check_outs(kCallName, args, {operands.out}, rows, problem.out_dtype), all_read(args));
  pack_a(operands);
  return operands;
}

Schedule Op::make_schedule(const Tables& tables, Epoch epoch, const Arguments&, Session&) {
  return tables.schedule(epoch);
}

Call::Program Op::program(const Schedule& schedule, const Plan& plan, const Operands& operands, const Arguments& args) {
  return host_program(schedule, plan.choice.cursors, operands, args.stand_in ? &args.stand_in : nullptr);
}

// Copied are partial sums that stay here and node sums before they are sent; local peers get partial sums; the network
// counts what the proxy was given.
CallReport Op::report(const Schedule& s) {
  CallReport report;
  for (int32_t i = 0; i < s.map.total_chunks(); ++i) {
    const OwnedChunk c = s.map.at(i);
    (s.taker(c.owner) == s.me() ? report.copy_bytes : report.node_bytes) += s.partial_bytes(c);
  }
  for (int32_t i = 0; i < s.map.rail_chunks; ++i) {
    const int64_t bytes = s.sum_bytes(s.map.at(s.map.rail_order[i]));
    report.copy_bytes += bytes;
    report.network_bytes += bytes;
  }
  return report;
}

}  // namespace tilewire::gemm_rs
