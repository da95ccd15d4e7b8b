// What tells one job from another: a random nonce for names, and a key that only its ranks hold.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "transport/bootstrap/sha256.h"

namespace tilewire {

using Nonce = std::array<std::byte, 16>;

struct JobKey {
  Nonce nonce{};  // made by rank 0 at rendezvous; every host-global name (socket, file) must carry it
  Digest key{};   // derived from the shared secret and the nonce; never sent

  std::string nonce_hex() const;
};

// Fills from getrandom(2). Throws Error(unavailable) when the kernel refuses.
void random_bytes(std::span<std::byte> out);
Nonce random_nonce();
std::string to_hex(std::span<const std::byte> bytes);

// The job's key: HMAC(secret, nonce under a label of its own). An empty secret gives a key that anyone can derive.
JobKey derive_job_key(std::string_view secret, const Nonce& nonce);

}  // namespace tilewire
