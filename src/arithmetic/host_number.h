// Conversions between fp32 and the 16-bit element types, on blocks of elements. To 16 bits they round to nearest, ties
// to even; infinities, subnormals and -0.0 are kept, what is too large becomes infinity, and a NaN stays a NaN and
// comes out quiet. The results do not depend on the processor, nor on its flush-to-zero settings where the input is 16
// bits wide.
#pragma once

#include <cstdint>

#include <tilewire/data_type.h>

namespace tilewire {

// `count` elements of `type` that lie `stride` elements apart (1: contiguous; may be 0 or negative).
struct ConstElements {
  const void* data = nullptr;
  DataType type = DataType::fp32;
  int64_t stride = 1;
};
struct Elements {
  void* data = nullptr;
  DataType type = DataType::fp32;
  int64_t stride = 1;
};

// out[i] = in[i] for i < count. The areas must not overlap. Elements are aligned to their size.
void to_fp32(ConstElements in, int64_t count, float* out);
void from_fp32(const float* in, int64_t count, Elements out);

// One element.
float bf16_to_fp32(uint16_t bits);
float fp16_to_fp32(uint16_t bits);
uint16_t fp32_to_bf16(float value);
uint16_t fp32_to_fp16(float value);

}  // namespace tilewire
