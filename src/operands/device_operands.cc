#include "operands/device_operands.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "operands/matrix_checks.h"

namespace tilewire {
namespace {

constexpr int64_t kCopyBytes = 16;  // what the copy engine counts in

int64_t pitch_bytes(int64_t rows, int64_t cols, int64_t stride, DataType type) {
  return rows > 1 ? stride * size_bytes(type) : round_up(cols * size_bytes(type), kCopyBytes);
}

std::string text_of(const OperandShape& shape) {
  return fmt::format("{} [{}, {}]", to_string(shape.type), shape.rows, shape.cols);
}

}  // namespace

DeviceMatrix rows_of(const MatrixView& m) {
  return {m.data, m.rows, m.cols, pitch_bytes(m.rows, m.cols, m.row_stride, m.dtype), m.dtype};
}

bool is_n_major(const char* op, const std::string& name, const MatrixView& b) {
  const bool has_contiguous_cols = b.row_stride == 1 || b.rows <= 1;
  if (has_contiguous_cols && b.cols <= 1) return b.rows <= 1;
  if (b.has_contiguous_rows()) return true;
  if (has_contiguous_cols) return false;
  refuse_argument(op, name + " has strides that a kernel cannot follow",
                  fmt::format("strides of {} and {} elements", b.row_stride, b.col_stride), "one of them must be 1",
                  "copy it into contiguous memory");
}

DeviceMatrix as_stored(const char* op, const std::string& name, const MatrixView& b) {
  if (is_n_major(op, name, b)) return rows_of(b);
  return {b.data, b.cols, b.rows, pitch_bytes(b.cols, b.rows, b.col_stride, b.dtype), b.dtype};
}

bool are_n_major(const char* op, const std::vector<MatrixView>& b) {
  const bool first = is_n_major(op, argument_name("b", 0, b.size()), b[0]);
  for (size_t w = 1; w < b.size(); ++w) {
    if (is_n_major(op, argument_name("b", w, b.size()), b[w]) != first) {
      refuse_argument(
          op, "the weights of a call are stored in different orders",
          fmt::format("b[0] as {}, b[{}] as {}", first ? "[K, N]" : "[N, K]", w, first ? "[N, K]" : "[K, N]"),
          "the same for all", "make a call for each, or store them alike");
    }
  }
  return first;
}

void check_stored(const std::string& name, const DeviceMatrix& m) {
  if (m.rows > 0 && m.cols > 0) check_copyable(name.c_str(), m);
}

void check_device_rows(const char* op, const std::string& name, const MatrixView& m) {
  if (!m.has_contiguous_rows()) {
    refuse_argument(op, name + " has columns that a kernel cannot follow",
                    fmt::format("a stride of {} elements between columns", m.col_stride), "1",
                    "copy it into contiguous memory");
  }
  check_stored(name, rows_of(m));
}

void check_device_operands(const char* op, const MatrixView& a, const std::vector<MatrixView>& b) {
  check_device_rows(op, "a", a);
  if (b.empty()) refuse_argument(op, "there is no weight", "b is empty", "at least one");
  are_n_major(op, b);
  for (size_t w = 0; w < b.size(); ++w) {
    const std::string name = argument_name("b", w, b.size());
    check_stored(name, as_stored(op, name, b[w]));
  }
}

void check_operand(const char* op, const std::string& name, const DeviceMatrix& m, const OperandShape& shape) {
  if (m.rows != shape.rows || m.cols != shape.cols || m.type != shape.type) {
    refuse_argument(op, name + " does not fit the problem", text_of({m.rows, m.cols, m.type}), text_of(shape));
  }
  check_stored(name, m);
}

}  // namespace tilewire
