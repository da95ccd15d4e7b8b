// Neighbouring numbers of a row, as a lane that adds up has them in registers: fp32, read and written with few wide
// accesses. Rows of slots begin and end on 16 bytes, so these may be read and written whole.
#pragma once

#include "device/ptx/qualifier.cuh"
#include "device/tile/number_pairs.cuh"

#include <tilewire/data_type.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstring>

namespace tilewire {

template <int kCount>
struct Numbers {
  static_assert(kCount == 4 || kCount == 8);
  float v[kCount];
};

// As they lie in memory: 16 bytes of it, or 8 for four numbers of 16 bits.
TILEWIRE_DEVICE uint4 load_16_bytes(const std::byte* at) { return *reinterpret_cast<const uint4*>(at); }
TILEWIRE_DEVICE uint4 load_8_bytes(const std::byte* at) {
  const uint2 half = *reinterpret_cast<const uint2*>(at);
  return {half.x, half.y, 0, 0};
}

// kCount is 8 where all slots of a call have 16 bits, else 4: one load a slot either way.
template <int kCount>
TILEWIRE_DEVICE uint4 load_raw(const std::byte* at, DataType type) {
  return kCount == 8 || type == DataType::fp32 ? load_16_bytes(at) : load_8_bytes(at);
}

TILEWIRE_DEVICE float2 widened_pair(uint32_t bits, DataType type) {
  if (type == DataType::bf16) return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000)};
  __half2 pair;
  memcpy(&pair, &bits, sizeof(pair));
  return __half22float2(pair);
}

template <int kCount>
TILEWIRE_DEVICE Numbers<kCount> widened(const uint4& raw, DataType type) {
  const uint32_t bits[4] = {raw.x, raw.y, raw.z, raw.w};
  Numbers<kCount> n;
  if (kCount == 4 && type == DataType::fp32) {
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) n.v[i] = __uint_as_float(bits[i]);
    return n;
  }
#pragma unroll
  for (int32_t i = 0; i < kCount / 2; ++i) {
    const float2 pair = widened_pair(bits[i], type);
    n.v[2 * i] = pair.x;
    n.v[2 * i + 1] = pair.y;
  }
  return n;
}

TILEWIRE_DEVICE uint32_t pack_pair(float low, float high, DataType type) {
  return type == DataType::bf16 ? pack_pair<__nv_bfloat16>(low, high) : pack_pair<__half>(low, high);
}

// As widened() takes them, rounded.
template <int kCount>
TILEWIRE_DEVICE uint4 packed(const Numbers<kCount>& n, DataType type) {
  if (kCount == 4 && type == DataType::fp32) {
    return {__float_as_uint(n.v[0]), __float_as_uint(n.v[1]), __float_as_uint(n.v[2]), __float_as_uint(n.v[3])};
  }
  uint32_t bits[4] = {};
#pragma unroll
  for (int32_t i = 0; i < kCount / 2; ++i) bits[i] = pack_pair(n.v[2 * i], n.v[2 * i + 1], type);
  return {bits[0], bits[1], bits[2], bits[3]};
}

// To 16-byte aligned memory, which has room for all kCount of them.
template <int kCount>
TILEWIRE_DEVICE void store_numbers(std::byte* to, const Numbers<kCount>& n, DataType type) {
  if (kCount == 8 && type == DataType::fp32) {
#pragma unroll
    for (int32_t i = 0; i < 2; ++i) {
      reinterpret_cast<float4*>(to)[i] = {n.v[4 * i], n.v[4 * i + 1], n.v[4 * i + 2], n.v[4 * i + 3]};
    }
    return;
  }
  const uint4 raw = packed(n, type);
  if (kCount == 8 || type == DataType::fp32) {
    *reinterpret_cast<uint4*>(to) = raw;
  } else {
    *reinterpret_cast<uint2*>(to) = {raw.x, raw.y};
  }
}

// One number, at any address that its type allows.
TILEWIRE_DEVICE float load_number(const std::byte* at, DataType type) {
  if (type == DataType::fp32) return *reinterpret_cast<const float*>(at);
  return widened_pair(*reinterpret_cast<const uint16_t*>(at), type).x;
}
TILEWIRE_DEVICE void store_number(std::byte* to, float value, DataType type) {
  if (type == DataType::fp32) {
    *reinterpret_cast<float*>(to) = value;
  } else {
    *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(pack_pair(value, 0, type));
  }
}

TILEWIRE_DEVICE int32_t bytes_of(DataType type) { return type == DataType::fp32 ? 4 : 2; }

// The first one is copied, so that a -0.0 stays one.
template <int kCount>
TILEWIRE_DEVICE void add_numbers(Numbers<kCount>& sum, const Numbers<kCount>& n, bool is_first) {
#pragma unroll
  for (int32_t i = 0; i < kCount; ++i) sum.v[i] = is_first ? n.v[i] : sum.v[i] + n.v[i];
}

}  // namespace tilewire
