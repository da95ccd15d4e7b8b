// Rows of the caller's matrices as bytes.
#pragma once

#include <tilewire/matrix.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tilewire {

std::byte* element_at(const MatrixView& m, int64_t row, int64_t col);

// One row of a strided view, packed.
void copy_row(const MatrixView& from, int64_t row, std::byte* to);

// Results of an aborted call are NaN, so that nobody mistakes them. Columns must be contiguous; a view without memory
// is left out.
void fill_with_nan(const std::vector<MatrixView>& results);

}  // namespace tilewire
