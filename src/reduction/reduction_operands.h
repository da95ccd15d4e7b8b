// What calls have in common that sum the products of all ranks: operands with their checks. Errors are
// Error(invalid_argument) that names the argument, its values and the limit; `op` is the name of the call.
#pragma once

#include <tilewire/matrix.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/call_text.h"
#include "operands/weighted_matmul.h"
#include "reduction/wire_types.h"

namespace tilewire {

// Stands in for the arithmetic where a test or a benchmark wants to rule the time of a chunk: so many rows and columns.
using ChunkStandIn = std::function<void(int64_t rows, int64_t cols)>;

// The Arguments of such an op derive from it. One weight.
struct ReductionArguments : MatmulOperands {
  std::optional<MatrixView> residual;  // added behind the bias; any strides and dtype
  DataType out_dtype = DataType::bf16;
  std::optional<DataType> wire_dtype;  // empty: that of a
  std::string plan_json;               // empty: the planner chooses
  ChunkStandIn stand_in;               // for tests and benchmarks
};

// The caller's memory for one call. All views have been checked against the problem.
struct ReductionOperands : MatmulOperands {
  std::optional<MatrixView> residual;  // of the shape of `out`
  MatrixView out;                      // columns contiguous
  WireTypes wire;
  std::shared_ptr<std::vector<std::byte>> packed{};  // behind `a`, where the caller's has no contiguous rows

  std::vector<MatrixView> written() const { return {out}; }
};

// What all ranks agree on: the columns of the result, and the dtypes of operands and of what travels.
CallPart agreed_columns(int64_t n);
CallPart agreed_wire(DataType dtype, DataType wire_dtype);

// What one rank can find wrong with its arguments before it knows the problem.
void check_reduction(const char* op, const ReductionArguments& arguments);

// The result's shape, and what its rows are for errors: "the rows that this rank gets".
struct ReductionResult {
  int64_t rows = 0;
  int64_t cols = 0;
  DataType dtype = DataType::bf16;
  const char* rows_are = "";
};
// A residual of another shape than the result's is refused: before anybody is asked for memory.
void check_residual(const char* op, const ReductionArguments& arguments, const ReductionResult& result);
// `out` is what the caller gives for the result.
ReductionOperands reduction_operands(const char* op, const ReductionArguments& arguments, const MatrixView& out,
                                     const ReductionResult& result, DataType wire_dtype);

}  // namespace tilewire
