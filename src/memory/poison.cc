#include "memory/poison.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace tilewire {

void fill_poison(void* begin, int64_t bytes, Epoch epoch) {
  std::array<uint16_t, 2048> block;
  block.fill(poison_pattern(epoch));
  auto* at = static_cast<std::byte*>(begin);
  for (int64_t left = bytes; left > 0;) {
    const int64_t step = std::min<int64_t>(left, sizeof(block));
    std::memcpy(at, block.data(), static_cast<size_t>(step));
    at += step;
    left -= step;
  }
}

int64_t find_poison(const void* begin, int64_t bytes, Epoch epoch) {
  const uint16_t pattern = poison_pattern(epoch);
  const auto* at = static_cast<const std::byte*>(begin);
  for (int64_t unit = 0; unit < bytes / 2; ++unit) {
    uint16_t value = 0;
    std::memcpy(&value, at + 2 * unit, sizeof(value));
    if (value == pattern) return unit;
  }
  return -1;
}

}  // namespace tilewire
