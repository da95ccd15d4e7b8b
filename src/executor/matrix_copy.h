// Rows of the caller's matrices as bytes, and their way into and out of an arena, where rows lie packed: one behind the
// other, a pitch of whole wire units apart.
#pragma once

#include <tilewire/matrix.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "arithmetic/host_gemm.h"
#include "memory/arena.h"

namespace tilewire {

std::byte* element_at(const MatrixView& m, int64_t row, int64_t col);

// One row of a strided view, packed.
void copy_row(const MatrixView& from, int64_t row, std::byte* to);

// So many rows from `first_row` on. The bytes between a row's end and the pitch become zeros, so that no stale bytes
// travel.
struct PackedRows {
  std::byte* to = nullptr;
  int64_t pitch_bytes = 0;
};
void pack_rows(const MatrixView& from, int64_t first_row, int64_t rows, PackedRows packed);
// `rows` rows that lie in segments, to those of `to` from `first_row` on. Its columns are contiguous.
void copy_segments(std::span<const RowSegment> segments, int64_t rows, const MatrixView& to, int64_t first_row);
// Where a matrix begins that lies packed in the user area already, from the start of that area: it can be sent from
// where it is. Nothing for any other matrix, nor for one without rows.
std::optional<int64_t> packed_in_user_area(const MatrixView& m, int64_t pitch_bytes, const Arena& arena);

// Results of an aborted call are NaN, so that nobody mistakes them. Columns must be contiguous; a view without memory
// is left out.
void fill_with_nan(const std::vector<MatrixView>& results);

}  // namespace tilewire
