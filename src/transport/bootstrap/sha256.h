// SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104), for telling ranks of a job from strangers. Not on the data path.
//
// Pure functions and plain values: thread-safe as such; nothing throws.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tilewire {

using Digest = std::array<std::byte, 32>;

class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::byte> data);
  Digest finish();  // the object must not be used afterwards

 private:
  void block(const std::byte* data);

  std::array<uint32_t, 8> state_;
  std::array<std::byte, 64> pending_;
  size_t pending_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

Digest sha256(std::span<const std::byte> data);
Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> data);

// Compares in a time that depends only on the sizes, so that a stranger cannot learn a digest byte by byte.
bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace tilewire
