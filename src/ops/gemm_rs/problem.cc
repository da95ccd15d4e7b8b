#include "ops/gemm_rs/problem.h"

#include <fmt/format.h>

#include <algorithm>

#include "operands/weighted_matmul.h"
#include "reduction/reduction_operands.h"

namespace tilewire::gemm_rs {

int64_t Problem::total_rows() const { return sum_of(rows); }

int64_t Problem::result_bytes(Rank of) const { return result_rows(of) * n * size_bytes(out_dtype); }

void Problem::validate() const {
  check_sizes(kCallName, {.rows = rows, .k = k, .cols = {n}, .element_bytes = size_bytes(DataType::fp32)});
}

CallParts Problem::agreed() const {
  return {{rows_text(rows) + " of the result"}, agreed_columns(n), agreed_wire(dtype, wire_dtype)};
}

std::string Problem::text() const {
  return fmt::format("{}, K = {} -> {}", text_of(agreed()), k, to_string(out_dtype));
}

}  // namespace tilewire::gemm_rs
