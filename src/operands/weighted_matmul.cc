#include "operands/weighted_matmul.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/bytes.h"
#include "executor/matrix_copy.h"

namespace tilewire {
namespace {

std::string weight_name(const MatmulOperands& o, size_t w) { return argument_name("b", w, o.b.size()); }

void check_weight(const char* op, const MatmulOperands& o, size_t w) {
  const MatrixView &a = o.a, &b = o.b[w];
  const std::string name = weight_name(o, w);
  if (b.rows != a.cols) {
    refuse_argument(op, name + " does not fit a",
                    fmt::format("a is {}, {} is {} (seen as [K, N])", shape_text(a), name, shape_text(b)),
                    "a's columns must equal K", "pass the weight as [K, N], or as [N, K] through its transposed view");
  }
  if (b.dtype != a.dtype) {
    refuse_argument(op, name + " has another dtype than a",
                    fmt::format("a is {}, {} is {}", to_string(a.dtype), name, to_string(b.dtype)), "must be equal");
  }
  check_memory(op, {name, b});
}

}  // namespace

std::vector<int64_t> cols_of(const MatmulOperands& operands) {
  std::vector<int64_t> cols;
  cols.reserve(operands.b.size());
  for (const MatrixView& b : operands.b) cols.push_back(b.cols);
  return cols;
}

void check_operands(const char* op, const MatmulOperands& o) {
  if (o.a.rows < 0 || o.a.cols < 0) {
    refuse_argument(op, "a has a negative size", "a is " + shape_text(o.a), ">= 0");
  }
  check_memory(op, {"a", o.a});
  for (size_t w = 0; w < o.b.size(); ++w) check_weight(op, o, w);
  if (!o.bias.empty() && o.bias.size() != o.b.size()) {
    refuse_argument(op, "bias has the wrong length", fmt::format("{} biases, {} weights", o.bias.size(), o.b.size()),
                    "one for each weight");
  }
}

std::vector<NamedMatrix> read_matrices(const MatmulOperands& o) {
  std::vector<NamedMatrix> read = {{"a", o.a}};
  for (size_t w = 0; w < o.b.size(); ++w) read.push_back({weight_name(o, w), o.b[w]});
  for (size_t w = 0; w < o.bias.size(); ++w) {
    const int64_t cols = o.b[w].cols;
    read.push_back(
        {argument_name("bias", w, o.bias.size()), {const_cast<void*>(o.bias[w]), 1, cols, cols, 1, o.bias_dtype}});
  }
  return read;
}

std::vector<NamedMatrix> check_outs(const char* op, const MatmulOperands& o, const std::vector<MatrixView>& out,
                                    int64_t rows, DataType dtype) {
  if (out.size() != o.b.size()) {
    refuse_argument(op, "out has the wrong length", fmt::format("{} results, {} weights", out.size(), o.b.size()),
                    "one for each weight");
  }
  std::vector<NamedMatrix> written;
  written.reserve(out.size());
  for (size_t w = 0; w < out.size(); ++w) {
    written.push_back({argument_name("out", w, out.size()), out[w]});
    check_result(op, written.back(), {.rows = rows, .cols = o.b[w].cols, .dtype = dtype});
  }
  return written;
}

void check_sizes(const char* op, const MatmulSizes& s) {
  if (s.rows.empty()) refuse_argument(op, "no ranks", "rows = []", "at least one");
  int64_t sum_rows = 0, sum_cols = 0;
  for (size_t r = 0; r < s.rows.size(); ++r) {
    if (s.rows[r] < 0) refuse_argument(op, "negative row count", fmt::format("rows[{}] = {}", r, s.rows[r]), ">= 0");
    sum_rows = checked_add(sum_rows, s.rows[r]);
  }
  if (s.k < 0) refuse_argument(op, "negative K", fmt::format("k = {}", s.k), ">= 0");
  if (s.cols.empty() || s.cols.size() > static_cast<size_t>(ColumnMap::kMaxWeights)) {
    refuse_argument(op, "wrong number of weights", fmt::format("{} weights", s.cols.size()),
                    fmt::format("1 to {} in a call", ColumnMap::kMaxWeights));
  }
  for (const int64_t c : s.cols) {
    if (c < 0) refuse_argument(op, "negative N", fmt::format("n = {}", c), ">= 0");
    sum_cols = checked_add(sum_cols, c);
  }
  checked_mul(checked_mul(sum_rows, std::max(s.k, sum_cols)), s.element_bytes);
}

int64_t sum_of(const std::vector<int64_t>& sizes) { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); }

std::string rows_text(const std::vector<int64_t>& rows) {
  const bool even = std::adjacent_find(rows.begin(), rows.end(), std::not_equal_to<>()) == rows.end();
  if (even && !rows.empty()) return fmt::format("{} rows on each of {} ranks", rows[0], rows.size());
  return fmt::format("[{}] rows", fmt::join(rows, ", "));
}

std::string cols_text(const std::vector<int64_t>& cols, DataType out_dtype) {
  return fmt::format("N = {} -> {}", fmt::join(cols, "+"), to_string(out_dtype));
}

HostGemmTile weight_tile(const MatmulOperands& operands, const ColumnMap::Block& columns, std::span<const RowSegment> a,
                         int64_t rows) {
  const MatrixView& b = operands.b[static_cast<size_t>(columns.weight)];
  return {.rows = rows,
          .cols = columns.end - columns.begin,
          .k = operands.a.cols,
          .a = a,
          .a_type = operands.a.dtype,
          .b = element_at(b, 0, columns.begin),
          .b_stride_k = b.row_stride,
          .b_stride_n = b.col_stride,
          .b_type = b.dtype};
}

void add_bias(const MatmulOperands& operands, const ColumnMap::Block& columns, HostGemmTile& tile) {
  const void* bias = operands.bias.empty() ? nullptr : operands.bias[static_cast<size_t>(columns.weight)];
  if (bias == nullptr) return;
  tile.bias = static_cast<const std::byte*>(bias) + columns.begin * size_bytes(operands.bias_dtype);
  tile.bias_type = operands.bias_dtype;
}

void write_into(const MatrixView& out, int64_t row, int64_t col, HostGemmTile& tile) {
  tile.out = element_at(out, row, col);
  tile.out_pitch_bytes = out.row_stride * size_bytes(out.dtype);
  tile.out_type = out.dtype;
}

}  // namespace tilewire
