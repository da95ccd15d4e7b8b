#include "ops/gemm_ar/problem.h"

#include <fmt/format.h>

#include "operands/weighted_matmul.h"

namespace tilewire::gemm_ar {

int64_t Problem::result_bytes(Rank) const { return m * n * size_bytes(out_dtype); }

void Problem::validate() const {
  check_sizes(kCallName, {.rows = {m}, .k = k, .cols = {n}, .element_bytes = size_bytes(DataType::fp32)});
}

std::string Problem::agreed_text() const {
  const char* added = has_bias && has_residual ? "a bias and a residual"
                      : has_bias               ? "a bias"
                      : has_residual           ? "a residual"
                                               : "nothing";
  return fmt::format("{} rows, N = {}, {} over {}, to {}, adding {}", m, n, to_string(dtype), to_string(wire_dtype),
                     to_string(out_dtype), added);
}

std::string Problem::text() const { return fmt::format("{}, K = {}", agreed_text(), k); }

}  // namespace tilewire::gemm_ar
