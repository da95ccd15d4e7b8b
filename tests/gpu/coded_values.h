// Operands coded by position: small integers that differ by place, rank and call, so that all sums are exact and results
// are compared bit for bit.
#pragma once

#include <bit>
#include <cstdint>

#include "arithmetic/host_number.h"
#include "base/ids.h"

#include <tilewire/data_type.h>

namespace tilewire {

// What lies wherever nothing was written: NaN.
constexpr uint16_t kPoisonBits = 0xffff;
constexpr uint32_t poison_bits(DataType type) { return type == DataType::fp32 ? 0xffffffff : kPoisonBits; }

constexpr bool is_nan_of(uint32_t bits, DataType type) {
  const uint32_t exponent = type == DataType::fp32 ? 0x7f800000 : type == DataType::bf16 ? 0x7f80 : 0x7c00;
  return (bits & (type == DataType::fp32 ? 0x7fffffff : 0x7fff)) > exponent;
}

// Elements of a row, rounded up to 16 bytes.
constexpr int64_t padded(int64_t elements, DataType type = DataType::bf16) {
  const int64_t step = 16 / size_bytes(type);
  return (elements + step - 1) / step * step;
}

// `row` is a row of all ranks together, `salt` differs from call to call.
TILEWIRE_HD constexpr float coded_a(int64_t row, int64_t i, int64_t salt) {
  return static_cast<float>((row * 7 + i * 3 + (row ^ i) + salt) % 9 - 4);
}
// Of weight `w` of a rank.
constexpr double coded_b(int32_t rank, size_t w, int64_t i, int64_t c) {
  return static_cast<double>((i * 5 + c * 11 + (i ^ c) + rank * 3 + static_cast<int64_t>(w)) % 7 - 3);
}
constexpr double coded_bias(int32_t rank, size_t w, int64_t c) {
  return static_cast<double>((c * 13 + rank + static_cast<int64_t>(w)) % 31 - 15) / 2;
}

// A number as a kernel rounds it.
inline uint32_t bits_of(double value, DataType type) {
  const auto number = static_cast<float>(value);
  if (type == DataType::fp32) return std::bit_cast<uint32_t>(number);
  return type == DataType::bf16 ? fp32_to_bf16(number) : fp32_to_fp16(number);
}
inline double number_of(uint32_t bits, DataType type) {
  if (type == DataType::fp32) return std::bit_cast<float>(bits);
  return type == DataType::bf16 ? bf16_to_fp32(static_cast<uint16_t>(bits)) : fp16_to_fp32(static_cast<uint16_t>(bits));
}
// Of an operand, which has 16 bits.
inline uint16_t narrow_bits_of(double value, DataType type) { return static_cast<uint16_t>(bits_of(value, type)); }

}  // namespace tilewire
