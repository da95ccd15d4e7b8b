// The conversions of host_number.h on single elements, free of branches so that compilers turn loops over them into
// vector code.
//
// All functions here have internal linkage on purpose: several source files are compiled for newer instructions than
// the rest of the library. A plain inline function would be merged by the linker, and code compiled for AVX-512 could
// end up in a path that every processor takes.
#pragma once

#include <bit>
#include <cstdint>

namespace tilewire {

inline constexpr uint32_t kFp32Infinity = 0x7f800000;
inline constexpr uint32_t kFp32QuietBit = 0x00400000;

[[gnu::always_inline]] static inline float bf16_bits_to_fp32(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  const bool is_nan = (wide & 0x7fffffff) > kFp32Infinity;
  return std::bit_cast<float>(wide | (is_nan ? kFp32QuietBit : 0));
}

[[gnu::always_inline]] static inline uint16_t fp32_to_bf16_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const bool is_nan = (bits & 0x7fffffff) > kFp32Infinity;
  const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);  // carries into the exponent, up to infinity
  return static_cast<uint16_t>((is_nan ? bits | kFp32QuietBit : rounded) >> 16);
}

[[gnu::always_inline]] static inline float fp16_bits_to_fp32(uint16_t bits) {
  const uint32_t sign = (uint32_t{bits} & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7fff;
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  const uint32_t special = (magnitude << 13) | kFp32Infinity | (magnitude > 0x7c00 ? kFp32QuietBit : 0);
  // Counts units of 2^-24 as an integer, so that no subnormal fp32 takes part: flush-to-zero does not matter.
  const uint32_t subnormal = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t finite = magnitude < 0x0400 ? subnormal : normal;
  return std::bit_cast<float>(sign | (magnitude >= 0x7c00 ? special : finite));
}

[[gnu::always_inline]] static inline uint16_t fp32_to_fp16_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - (112u << 23)) >> 13;
  // The spacing of fp32 numbers at 0.5 is that of the fp16 subnormals, so the addition rounds to it.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  const uint32_t subnormal = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f);
  const uint32_t nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
  const uint32_t finite = magnitude < 0x38800000 ? subnormal : normal;  // below 2^-14
  const uint32_t number = magnitude >= 0x477ff000 ? 0x7c00 : finite;    // from 65520 on: infinity
  return static_cast<uint16_t>(sign | (magnitude > kFp32Infinity ? nan : number));
}

}  // namespace tilewire
