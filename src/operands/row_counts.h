// Calls whose ranks bring different numbers of rows (RowCounts of the public header): checks, and the problem.
#pragma once

#include <tilewire/call.h>

#include <cstdint>
#include <vector>

#include "executor/count_exchange.h"
#include "executor/session.h"
#include "operands/matrix_checks.h"

namespace tilewire {

// The kMismatchAdvice of such an op.
inline constexpr const char* kRowsAdvice =
    "where ranks bring different numbers of rows, pass rows= with the counts of all ranks, or rows=\"exchange\"";

// What such a call exchanges, nullptr where it exchanges nothing.
inline const char* exchanged_rows(const RowCounts& rows) {
  return rows.from == RowCounts::From::exchange ? "row counts" : nullptr;
}

// What one rank can find wrong with its row counts, when they are a list. `own`: the matrix whose rows it brings.
// Throws Error(invalid_argument).
inline void check_rows(const char* op, const RowCounts& rows, const Session& session, const NamedMatrix& own) {
  if (rows.from != RowCounts::From::list) return;
  check_row_counts(op, rows.counts, session.topology().ranks);
  check_own_rows(op, rows.counts, session.rank(), own);
}

// `make(row counts of all ranks)` gives the problem, and throws where there can be none; also for `own_rows` on all
// ranks before counts are exchanged, so that what it throws is told in the exchange.
template <class MakeProblem>
auto problem_of_rows(const RowCounts& rows, int64_t own_rows, const Session& session, CountExchange& counts,
                     MakeProblem&& make) {
  if (rows.from == RowCounts::From::list) return make(rows.counts);
  auto problem = make(std::vector<int64_t>(static_cast<size_t>(session.topology().ranks), own_rows));
  if (rows.from == RowCounts::From::same) return problem;
  return make(counts.exchange(exchanged_rows(rows), own_rows, problem.text() + " (own rows; counts are exchanged)"));
}

}  // namespace tilewire
