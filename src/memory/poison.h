// Fills memory with values that show when they are used: NaN as bf16, fp16 and fp32 alike, and other ones in each call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ids.h"

namespace tilewire {

// One of 128 16-bit patterns, repeated through the range. Each is a quiet NaN as bf16 and as fp16, and two of them side
// by side are one as fp32. Calls less than 128 apart have different ones.
constexpr uint16_t poison_pattern(Epoch epoch) {
  const auto low = static_cast<uint16_t>(epoch & 0x3F);
  const auto sign = static_cast<uint16_t>((epoch & 0x40) << 9);
  return static_cast<uint16_t>(sign | 0x7FC0 | low);
}

// Fills [begin, begin + bytes). Any alignment; the pattern starts at `begin`.
void fill_poison(void* begin, int64_t bytes, Epoch epoch);

// Index of the first 16-bit unit of [begin, begin + bytes) that still holds the pattern of `epoch`, or -1.
int64_t find_poison(const void* begin, int64_t bytes, Epoch epoch);

}  // namespace tilewire
