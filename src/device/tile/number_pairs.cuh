// Two numbers as the 32 bits that tensor cores, stores and slots take, rounded to nearest.
#pragma once

#include "device/ptx/qualifier.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tilewire {

template <class Element>
TILEWIRE_DEVICE uint32_t pack_pair(float low, float high) {
  uint32_t bits;
  if constexpr (std::is_same_v<Element, __nv_bfloat16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    memcpy(&bits, &pair, sizeof(bits));
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    memcpy(&bits, &pair, sizeof(bits));
  }
  return bits;
}

}  // namespace tilewire
