// Reading memory and nothing else: what a call of few rows spends most of its time with.
#pragma once

#include "device/ptx/qualifier.cuh"

#include <cstdint>

namespace tilewire {

// By threads of a grid that read `count` units together: this one's from `first` on, every step-th. What it has read, as one
// number, or nothing would be read.
TILEWIRE_DEVICE uint32_t read_units(const uint4* from, int64_t count, int64_t first, int64_t step) {
  constexpr int32_t kAtOnce = 8;
  uint32_t all = 0;
  for (; first < count; first += kAtOnce * step) {
    uint4 raw[kAtOnce] = {};
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i) {
      if (first + i * step < count) raw[i] = __ldcs(from + first + i * step);
    }
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i) all |= raw[i].x | raw[i].y | raw[i].z | raw[i].w;
  }
  return all;
}

}  // namespace tilewire
