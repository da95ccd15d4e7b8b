#include "transport/bootstrap/job.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <tilewire/error.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/bootstrap/byte_codec.h"

namespace tilewire {

std::string JobKey::nonce_hex() const { return to_hex(nonce); }

void random_bytes(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::getrandom(out.data(), std::min<size_t>(out.size(), 256), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      throw Error(ErrorKind::unavailable, {.what = "the kernel gives no random bytes",
                                           .values = fmt::format("getrandom: {}", strerror(errno))});
    }
    out = out.subspan(static_cast<size_t>(got));
  }
}

Nonce random_nonce() {
  Nonce nonce;
  random_bytes(nonce);
  return nonce;
}

std::string to_hex(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte b : bytes) out += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return out;
}

JobKey derive_job_key(std::string_view secret, const Nonce& nonce) {
  const Bytes label = ByteWriter().text("tilewire job key").raw(nonce).take();
  return {nonce, hmac_sha256(to_bytes(secret), label)};
}

}  // namespace tilewire
