#include "ops/ag_gemm/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tilewire/error.h>

#include <algorithm>
#include <numeric>

#include "base/bytes.h"
#include "schedule/column_map.h"

namespace tilewire::ag_gemm {
namespace {

void refuse(std::string what, std::string values, std::string limit) {
  throw Error(ErrorKind::invalid_argument,
              {.what = std::move(what), .where = kCallName, .values = std::move(values), .limit = std::move(limit)});
}

// "128 rows on each of 4 ranks" or the list.
std::string rows_text(const std::vector<int64_t>& rows) {
  const bool even = std::adjacent_find(rows.begin(), rows.end(), std::not_equal_to<>()) == rows.end();
  if (even && !rows.empty()) return fmt::format("{} rows on each of {} ranks", rows[0], rows.size());
  return fmt::format("[{}] rows", fmt::join(rows, ", "));
}

}  // namespace

int64_t Problem::total_rows() const { return std::accumulate(rows.begin(), rows.end(), int64_t{0}); }
int64_t Problem::total_cols() const { return std::accumulate(cols.begin(), cols.end(), int64_t{0}); }
double Problem::flops() const {
  return 2.0 * static_cast<double>(total_rows()) * static_cast<double>(k) * static_cast<double>(total_cols());
}

int64_t Problem::result_bytes() const {
  const int64_t row_bytes = total_cols() * size_bytes(out_dtype) + (wants_gathered ? k * size_bytes(dtype) : 0);
  return total_rows() * row_bytes;
}

void Problem::validate() const {
  if (rows.empty()) refuse("no ranks", "rows = []", "at least one");
  for (size_t r = 0; r < rows.size(); ++r) {
    if (rows[r] < 0) refuse("negative row count", fmt::format("rows[{}] = {}", r, rows[r]), ">= 0");
  }
  if (k < 0) refuse("negative K", fmt::format("k = {}", k), ">= 0");
  if (cols.empty() || cols.size() > static_cast<size_t>(ColumnMap::kMaxWeights)) {
    refuse("wrong number of weights", fmt::format("{} weights", cols.size()),
           fmt::format("1 to {} may share one gather", ColumnMap::kMaxWeights));
  }
  int64_t sum_rows = 0, sum_cols = 0;
  for (const int64_t r : rows) sum_rows = checked_add(sum_rows, r);
  for (const int64_t c : cols) {
    if (c < 0) refuse("negative N", fmt::format("n = {}", c), ">= 0");
    sum_cols = checked_add(sum_cols, c);
  }
  const int64_t element = std::max(size_bytes(dtype), size_bytes(out_dtype));
  checked_mul(checked_mul(sum_rows, std::max(k, sum_cols)), element);
}

std::string Problem::agreed_text() const { return fmt::format("{}, K = {}, {}", rows_text(rows), k, to_string(dtype)); }

std::string Problem::text() const {
  return fmt::format("{}, N = {} -> {}{}", agreed_text(), fmt::join(cols, "+"), to_string(out_dtype),
                     wants_gathered ? " and the gathered rows" : "");
}

}  // namespace tilewire::ag_gemm
