#include "reduction/reduction_operands.h"

#include <fmt/format.h>

#include "executor/matrix_copy.h"
#include "operands/matrix_checks.h"

namespace tilewire {
namespace {

std::vector<NamedMatrix> all_read(const ReductionArguments& args) {
  std::vector<NamedMatrix> read = read_matrices(args);
  if (args.residual) read.push_back({"residual", *args.residual});
  return read;
}

// `a` with contiguous rows, copied where the caller's has none.
void pack_a(ReductionOperands& operands) {
  MatrixView& a = operands.a;
  if (a.has_contiguous_rows() || a.rows == 0) return;
  const int64_t pitch_bytes = a.cols * size_bytes(a.dtype);
  operands.packed = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(a.rows * pitch_bytes));
  pack_rows(a, 0, a.rows, {.to = operands.packed->data(), .pitch_bytes = pitch_bytes});
  a.data = operands.packed->data();
  a.row_stride = a.cols;
  a.col_stride = 1;
}

}  // namespace

CallPart agreed_columns(int64_t n) {
  return {fmt::format("N = {}", n), "bring the same number of columns on all ranks"};
}

CallPart agreed_wire(DataType dtype, DataType wire_dtype) {
  return {fmt::format("{} over {}", to_string(dtype), to_string(wire_dtype)), "pass the same wire_dtype= on all ranks"};
}

void check_reduction(const char* op, const ReductionArguments& args) {
  if (args.b.size() != 1) {
    refuse_argument(op, "wrong number of weights", fmt::format("{} weights", args.b.size()), "one in a call");
  }
  check_operands(op, args);
}

void check_residual(const char* op, const ReductionArguments& args, const ReductionResult& result) {
  if (!args.residual) return;
  const MatrixView& residual = *args.residual;
  check_memory(op, {"residual", residual});
  if (residual.rows == result.rows && residual.cols == result.cols) return;
  refuse_argument(op, "residual has the wrong shape", "residual is " + shape_text(residual),
                  fmt::format("[{}, {}]: {}", result.rows, result.cols, result.rows_are));
}

ReductionOperands reduction_operands(const char* op, const ReductionArguments& args, const MatrixView& out,
                                     const ReductionResult& result, DataType wire_dtype) {
  ReductionOperands operands{args, args.residual, out, wire_types(wire_dtype)};
  check_no_overlap(op, check_outs(op, args, {out}, result.rows, result.dtype), all_read(args));
  pack_a(operands);
  return operands;
}

}  // namespace tilewire
