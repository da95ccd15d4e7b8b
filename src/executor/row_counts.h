// The problem of a call whose ranks bring rows of different numbers (RowCounts of the public header).
#pragma once

#include <tilewire/call.h>

#include <cstdint>
#include <vector>

#include "executor/count_exchange.h"
#include "executor/session.h"

namespace tilewire {

// For the kMismatchAdvice of such an op.
inline constexpr const char* kRowsAdvice =
    "where ranks bring different numbers of rows, pass rows= with the counts of all ranks, or rows=\"exchange\"";

// `make(row counts of all ranks)` gives the problem, and throws where there can be none; also for `own_rows` on all
// ranks before counts are exchanged, so that a rank refuses before it waits.
template <class MakeProblem>
auto problem_of_rows(const RowCounts& rows, int64_t own_rows, const Session& session, CountExchange& counts,
                     MakeProblem&& make) {
  if (rows.from == RowCounts::From::list) return make(rows.counts);
  auto problem = make(std::vector<int64_t>(static_cast<size_t>(session.topology().ranks), own_rows));
  if (rows.from == RowCounts::From::same) return problem;
  return make(counts.exchange("row counts", own_rows, problem.text() + " (own rows; counts are exchanged)"));
}

}  // namespace tilewire
