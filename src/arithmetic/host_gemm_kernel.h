// Between host_gemm.cc, which cuts tiles, and the inner loops, which are compiled once a variant. Plain data only: what
// is shared by files that are compiled for different instructions must not contain inline code.
#pragma once

#include <cstdint>

#include <tilewire/data_type.h>

namespace tilewire {

// A part of a tile that fits the buffers: rows <= max_rows, cols <= max_cols, both > 0, k >= 0. For the rest see
// HostGemmTile.
struct HostGemmBlock {
  int64_t rows;
  int64_t cols;
  int64_t k;
  const void* const* a_rows;  // one pointer a row
  DataType a_type;
  const void* b;
  int64_t b_stride_k;
  int64_t b_stride_n;
  DataType b_type;
  const void* bias;
  DataType bias_type;
  void* out;
  int64_t out_pitch_bytes;
  DataType out_type;
};

struct HostGemmKernel {
  int64_t max_rows;
  int64_t max_cols;
  int64_t row_step;  // rows and columns are computed in multiples of these, padded with zeros
  int64_t col_step;
  int64_t buffer_floats;  // 64-byte aligned memory that compute() needs
  void (*compute)(const HostGemmBlock& block, float* buffers);
};

extern const HostGemmKernel kHostGemmGeneric;
#if defined(__x86_64__)
extern const HostGemmKernel kHostGemmAvx2;
extern const HostGemmKernel kHostGemmAvx512;
#endif

}  // namespace tilewire
