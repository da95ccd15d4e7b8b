// Tensor maps: how the copy engine sees a matrix in device memory. Host code.
#pragma once

#include <cuda.h>
#include <tilewire/data_type.h>

#include <cstdint>

namespace tilewire {

// Row-major. `data` is 16-byte aligned and the pitch a multiple of 16 bytes; `rows` and `cols` are
// free below 2^31.
struct DeviceMatrix {
  const void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t pitch_bytes = 0;
  DataType type = DataType::bf16;
};

// The part that one copy moves: at most 256 rows, and columns of 128 or 64 bytes together, swizzled over them.
struct TensorBox {
  int32_t rows;
  int32_t cols;
};

// Throws Error(invalid_argument) that names the matrix when the copy engine cannot address it.
void check_copyable(const char* name, const DeviceMatrix& matrix);

// `name` stands in errors: "a". What lies outside the matrix is read as zero and not written, but for the 16 bytes in
// which a row ends: those are written whole. Throws
// Error(invalid_argument) for a matrix that the copy engine cannot address, Error(unavailable) without a driver.
CUtensorMap encode_tensor_map(const char* name, const DeviceMatrix& matrix, TensorBox box);

}  // namespace tilewire
