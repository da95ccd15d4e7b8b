#include "ops/gemm_rs/gemm_rs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "operands/matrix_checks.h"
#include "operands/row_counts.h"
#include "reduction/reduction_report.h"
#include "schedule/chunk_tables.h"

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

}  // namespace

void Op::check(const Arguments& args, Session& session) {
  check_reduction(kCallName, args);
  check_rows(args, session);
}

Problem Op::make_problem(const Arguments& args, Session& session, CountExchange&) {
  Problem problem{.rows = args.rows.from == RowCounts::From::list ? args.rows.counts
                                                                  : dealt_evenly(args.a.rows, session.topology().ranks),
                  .n = args.b[0].cols,
                  .dtype = args.a.dtype,
                  .wire_dtype = args.wire_dtype.value_or(args.a.dtype),
                  .k = args.a.cols,
                  .out_dtype = args.out_dtype};
  problem.validate();
  return problem;
}

HostOperands Op::make_operands(const Arguments& args, const Problem& problem, Rank me) {
  const ReductionResult result{.rows = problem.result_rows(me),
                               .cols = problem.n,
                               .dtype = problem.out_dtype,
                               .rows_are = "the rows that this rank gets"};
  check_residual(kCallName, args, result);
  return reduction_operands(kCallName, args, args.make_results(problem), result, problem.wire_dtype);
}

CallReport Op::report(const Schedule& s) {
  CallReport report;
  count_sums(s, report);
  return report;
}

}  // namespace tilewire::gemm_rs
