#include "ops/gemm_ar/problem.h"

#include <fmt/format.h>

#include "operands/weighted_matmul.h"
#include "reduction/reduction_operands.h"

namespace tilewire::gemm_ar {

int64_t Problem::result_bytes(Rank) const { return m * n * size_bytes(out_dtype); }

void Problem::validate() const {
  check_sizes(kCallName, {.rows = {m}, .k = k, .cols = {n}, .element_bytes = size_bytes(DataType::fp32)});
}

CallParts Problem::agreed() const {
  const char* added = has_bias && has_residual ? "a bias and a residual"
                      : has_bias               ? "a bias"
                      : has_residual           ? "a residual"
                                               : "nothing";
  return {{fmt::format("{} rows", m)},
          agreed_columns(n),
          agreed_wire(dtype, wire_dtype),
          {fmt::format("to {}", to_string(out_dtype)), "pass the same out_dtype= on all ranks"},
          {fmt::format("adding {}", added), "pass bias= and residual= on all ranks or on none, with the same values"}};
}

std::string Problem::text() const { return fmt::format("{}, K = {}", text_of(agreed()), k); }

}  // namespace tilewire::gemm_ar
