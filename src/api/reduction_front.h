// What the public functions have in common of operations that sum the products of all ranks; see op_front.h.
#pragma once

#include "api/op_front.h"
#include "reduction/reduction_operands.h"

namespace tilewire {

// The public arguments of an operation that sums the products of all ranks, but for what it has of its own.
template <class Arguments>
ReductionArguments to_reduction(const Arguments& a) {
  ReductionArguments out;
  static_cast<MatmulOperands&>(out) = {.a = a.a, .b = {a.b}, .bias = {a.bias}, .bias_dtype = a.bias_dtype};
  out.residual = a.residual;
  out.out_dtype = a.out_dtype;
  out.wire_dtype = a.wire_dtype;
  out.plan_json = a.plan_json;
  if (a.compute_stand_in) {
    out.stand_in = [stand_in = a.compute_stand_in, k = a.a.cols](int64_t rows, int64_t cols) {
      stand_in(rows, cols, k);
    };
  }
  return out;
}

}  // namespace tilewire
