// A 64-bit hash for what all ranks must agree on: FNV-1a over bytes, the same on every machine. Not for security.
// Source: Fowler, Noll, Vo; the offset basis and prime are those of the 64-bit variant.
#pragma once

#include <cstdint>
#include <string_view>

namespace tilewire {

constexpr uint64_t hash64(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) {
    h ^= static_cast<unsigned char>(c);
    h *= 0x100000001b3u;
  }
  return h;
}

}  // namespace tilewire
