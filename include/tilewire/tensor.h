// Views of the caller's tensors of heads.
#pragma once

#include <tilewire/data_type.h>
#include <tilewire/matrix.h>

#include <cstdint>

namespace tilewire {

// [batch, rows, heads, dim] in host memory, or in that of a GPU. Strides count elements and may be anything, so that memory laid out as
// [batch, heads, rows, dim] is a view with two of them swapped; a view owns nothing.
struct HeadsView {
  void* data = nullptr;
  int64_t batch = 0;
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t dim = 0;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t head_stride = 0;
  int64_t dim_stride = 1;
  DataType dtype = DataType::bf16;
};

}  // namespace tilewire
