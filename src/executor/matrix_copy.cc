#include "executor/matrix_copy.h"

#include <cstring>

namespace tilewire {

std::byte* element_at(const MatrixView& m, int64_t row, int64_t col) {
  return static_cast<std::byte*>(m.data) + (row * m.row_stride + col * m.col_stride) * size_bytes(m.dtype);
}

void copy_row(const MatrixView& from, int64_t row, std::byte* to) {
  const int64_t size = size_bytes(from.dtype);
  if (from.has_contiguous_rows()) {
    std::memcpy(to, element_at(from, row, 0), from.cols * size);
    return;
  }
  for (int64_t c = 0; c < from.cols; ++c) std::memcpy(to + c * size, element_at(from, row, c), size);
}

void fill_with_nan(const std::vector<MatrixView>& results) {
  for (const MatrixView& m : results) {
    if (m.data == nullptr) continue;
    // All bits set is NaN in every dtype.
    for (int64_t row = 0; row < m.rows; ++row) {
      std::memset(element_at(m, row, 0), 0xff, m.cols * size_bytes(m.dtype));
    }
  }
}

}  // namespace tilewire
