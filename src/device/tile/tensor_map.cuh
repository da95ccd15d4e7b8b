// Tensor maps: how the copy engine sees a matrix in device memory. Host code.
#pragma once

#include <cuda.h>
#include <tilewire/data_type.h>
#include <tilewire/tensor.h>

#include <cstdint>

namespace tilewire {

// Row-major, 16-bit elements. `data` is 16-byte aligned and the pitch a multiple of 16 bytes; `rows` and `cols` are
// free below 2^31.
struct DeviceMatrix {
  const void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t pitch_bytes = 0;
  DataType type = DataType::bf16;

  friend bool operator==(const DeviceMatrix&, const DeviceMatrix&) = default;
};

// The part that one copy moves: at most 256 rows, and 64 or 32 columns, swizzled over their 128 or 64 bytes.
struct TensorBox {
  int32_t rows;
  int32_t cols;
  bool is_swizzled = true;  // false: lines lie one behind the other, and may have up to 256 columns

  friend bool operator==(const TensorBox&, const TensorBox&) = default;
};

// Throws Error(invalid_argument) that names the matrix when the copy engine cannot address it.
void check_copyable(const char* name, const DeviceMatrix& matrix);

// `name` stands in errors: "a". What lies outside the matrix is read as zero and not written, but for the 16 bytes in
// which a row ends: those are written whole. Throws
// Error(invalid_argument) for a matrix that the copy engine cannot address, Error(unavailable) without a driver.
CUtensorMap encode_tensor_map(const char* name, const DeviceMatrix& matrix, TensorBox box);

// The map of an operand that is mostly where it was the last time. One thread at a time.
class KeptTensorMap {
 public:
  const CUtensorMap& of(const char* name, const DeviceMatrix& matrix, TensorBox box) {
    if (matrix == matrix_ && box == box_) return map_;
    map_ = encode_tensor_map(name, matrix, box);
    matrix_ = matrix;
    box_ = box;
    return map_;
  }

 private:
  DeviceMatrix matrix_;  // no rows: none
  TensorBox box_{};
  CUtensorMap map_{};
};

// Rows of heads of batch entries: how a copy sees them is by column, row, head and batch entry. Columns are contiguous;
// addresses and strides are multiples of 16 bytes. Otherwise as encode_tensor_map().
CUtensorMap encode_heads_map(const char* name, const HeadsView& heads, TensorBox box);
// Throws what that does of what the copy engine cannot address, where it has elements.
void check_copyable(const char* name, const HeadsView& heads);

// Matrices of one shape behind each other, in order: how a copy sees them is by column, row and slot. Addresses, pitch and
// slots are multiples of 16 bytes.
struct SlotArray {
  void* data = nullptr;
  int64_t slots = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t pitch_bytes = 0;
  int64_t slot_bytes = 0;
  DataType type = DataType::bf16;
};

// The same for slots: what lies outside of one is not written. Throws Error(internal) when the driver refuses it.
CUtensorMap encode_slot_map(const char* name, const SlotArray& slots, TensorBox box);

}  // namespace tilewire
