#include "executor/matrix_copy.h"

#include <cstring>

#include "schedule/wire.h"

namespace tilewire {

std::byte* element_at(const MatrixView& m, int64_t row, int64_t col) {
  return static_cast<std::byte*>(m.data) + (row * m.row_stride + col * m.col_stride) * size_bytes(m.dtype);
}

void copy_row(const MatrixView& from, int64_t row, std::byte* to) {
  const int64_t size = size_bytes(from.dtype);
  if (from.cols == 0) return;  // a matrix without elements may have no memory
  if (from.has_contiguous_rows()) {
    std::memcpy(to, element_at(from, row, 0), from.cols * size);
    return;
  }
  for (int64_t c = 0; c < from.cols; ++c) std::memcpy(to + c * size, element_at(from, row, c), size);
}

void pack_rows(const MatrixView& from, int64_t first_row, int64_t rows, PackedRows packed) {
  const int64_t row_bytes = from.cols * size_bytes(from.dtype);
  for (int64_t row = 0; row < rows; ++row) {
    std::byte* to = packed.to + row * packed.pitch_bytes;
    copy_row(from, first_row + row, to);
    std::memset(to + row_bytes, 0, packed.pitch_bytes - row_bytes);
  }
}

void copy_segments(std::span<const RowSegment> segments, int64_t rows, const MatrixView& to, int64_t first_row) {
  const int64_t row_bytes = to.cols * size_bytes(to.dtype);
  for (size_t i = 0; i < segments.size(); ++i) {
    const RowSegment& from = segments[i];
    const int64_t end = i + 1 < segments.size() ? segments[i + 1].first_row : rows;
    for (int64_t r = from.first_row; r < end; ++r) {
      std::memcpy(element_at(to, first_row + r, 0),
                  static_cast<const std::byte*>(from.base) + (r - from.first_row) * from.pitch_bytes, row_bytes);
    }
  }
}

std::optional<int64_t> packed_in_user_area(const MatrixView& m, int64_t pitch_bytes, const Arena& arena) {
  const int64_t element = size_bytes(m.dtype);
  const bool has_pitch = m.has_contiguous_rows() && (m.rows <= 1 || m.row_stride * element == pitch_bytes) &&
                         m.cols * element == pitch_bytes;
  const int64_t offset = arena.user_area_offset(m.data);
  if (!has_pitch || offset < 0 || m.rows == 0) return std::nullopt;
  const int64_t in_user = offset - arena.layout().user_offset();
  if (in_user % kWireUnitBytes != 0) return std::nullopt;
  return in_user;
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
