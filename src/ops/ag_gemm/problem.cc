#include "ops/ag_gemm/problem.h"

#include <fmt/format.h>

#include <algorithm>

#include "operands/weighted_matmul.h"

namespace tilewire::ag_gemm {

int64_t Problem::total_rows() const { return sum_of(rows); }

int64_t Problem::result_bytes(Rank) const {
  const int64_t row_bytes = sum_of(cols) * size_bytes(out_dtype) + (wants_gathered ? k * size_bytes(dtype) : 0);
  return total_rows() * row_bytes;
}

void Problem::validate() const {
  const int64_t element_bytes = std::max(size_bytes(dtype), size_bytes(out_dtype));
  check_sizes(kCallName, {.rows = rows, .k = k, .cols = cols, .element_bytes = element_bytes});
}

CallParts Problem::agreed() const { return {{rows_text(rows)}, {fmt::format("K = {}", k)}, {to_string(dtype)}}; }

std::string Problem::text() const {
  return fmt::format("{}, {}{}", text_of(agreed()), cols_text(cols, out_dtype),
                     wants_gathered ? " and the gathered rows" : "");
}

}  // namespace tilewire::ag_gemm
