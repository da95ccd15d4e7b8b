// Views of the caller's matrices.
#pragma once

#include <tilewire/data_type.h>

#include <cstdint>

namespace tilewire {

// A two-dimensional view of memory: of the host, or of the GPU of a GPU rank. Strides count elements and may be anything; a view owns nothing.
struct MatrixView {
  void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;
  int64_t col_stride = 1;
  DataType dtype = DataType::bf16;

  bool has_contiguous_rows() const { return col_stride == 1 || cols <= 1; }
};

}  // namespace tilewire
