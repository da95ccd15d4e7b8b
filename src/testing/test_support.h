// For tests of ops: options of a small communicator, and matrices that own their memory.
#pragma once

#include <tilewire/matrix.h>
#include <tilewire/options.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "arithmetic/host_number.h"
#include "memory/poison.h"

namespace tilewire {

// Little memory, short limits.
inline Options test_options() {
  Options o;
  o.arena_initial_bytes = 1 << 20;
  o.arena_reserve_bytes = 64 << 20;
  o.user_arena_reserve_bytes = 64 << 20;
  o.max_chunks_per_source = 64;
  o.deadline_s = 30;
  o.connect_deadline_s = 30;
  o.spin_us = 5;
  o.workers = 1;
  return o;
}

// A number as a result of this dtype holds it.
inline float rounded(double value, DataType dtype) {
  const float exact = static_cast<float>(value);
  std::byte stored[4];
  float result = 0;
  from_fp32(&exact, 1, {stored, dtype});
  to_fp32({stored, dtype}, 1, &result);
  return result;
}

// A matrix of any dtype with its own memory, poisoned at first.
class OwnedMatrix {
 public:
  OwnedMatrix() = default;
  OwnedMatrix(int64_t rows, int64_t cols, DataType dtype) : bytes_(rows * cols * size_bytes(dtype)) {
    view_ = {bytes_.data(), rows, cols, cols, 1, dtype};
    fill_poison(bytes_.data(), static_cast<int64_t>(bytes_.size()), 77);
  }
  const MatrixView& view() const { return view_; }
  MatrixView transposed() const {
    return {view_.data, view_.cols, view_.rows, view_.col_stride, view_.row_stride, view_.dtype};
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  void set(int64_t r, int64_t c, double value) {
    const float f = static_cast<float>(value);
    std::byte* at = bytes_.data() + (r * view_.cols + c) * size_bytes(view_.dtype);
    from_fp32(&f, 1, {at, view_.dtype});
  }
  void fill(double value) {
    for (int64_t r = 0; r < view_.rows; ++r) {
      for (int64_t c = 0; c < view_.cols; ++c) set(r, c, value);
    }
  }
  float get(int64_t r, int64_t c) const {
    float f = 0;
    to_fp32({bytes_.data() + (r * view_.cols + c) * size_bytes(view_.dtype), view_.dtype}, 1, &f);
    return f;
  }

 private:
  std::vector<std::byte> bytes_;
  MatrixView view_;
};

}  // namespace tilewire
