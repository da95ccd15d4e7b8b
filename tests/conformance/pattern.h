// Position-coded bytes: a byte that is missing, late, doubled or in the wrong place is seen.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

namespace tilewire {

inline uint64_t pattern_word(uint64_t seed, uint64_t number) {
  const uint64_t x = ((seed + 1) * 0x9E3779B97F4A7C15u) ^ (number * 0xC2B2AE3D27D4EB4Fu);
  return x ^ (x >> 29);
}

inline void fill_pattern(std::byte* to, uint64_t bytes, uint64_t seed) {
  for (uint64_t at = 0; at < bytes; at += 8) {
    const uint64_t word = pattern_word(seed, at / 8);
    std::memcpy(to + at, &word, std::min<uint64_t>(8, bytes - at));
  }
}

// Where the first word lies that is not as fill_pattern() left it.
inline std::optional<uint64_t> find_wrong_byte(const std::byte* data, uint64_t bytes, uint64_t seed) {
  for (uint64_t at = 0; at < bytes; at += 8) {
    const uint64_t word = pattern_word(seed, at / 8);
    if (std::memcmp(data + at, &word, std::min<uint64_t>(8, bytes - at)) != 0) return at;
  }
  return std::nullopt;
}

}  // namespace tilewire
