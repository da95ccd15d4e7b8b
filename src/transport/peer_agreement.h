// Errors of back ends whose peers are not as they are themselves.
#pragma once

#include <fmt/format.h>
#include <tilewire/error.h>

#include <cstddef>
#include <string>
#include <utility>

#include "base/ids.h"

namespace tilewire {

inline constexpr const char* kSameTransportAdvice = "give every rank the same transport and library";

// For an address that is none of this transport.
[[noreturn]] inline void refuse_address(Rank peer, size_t bytes, std::string where,
                                        const char* advice = kSameTransportAdvice) {
  throw Error(ErrorKind::mismatch, {.what = "a peer has another transport",
                                    .where = std::move(where),
                                    .values = fmt::format("peer = {}, {} bytes of address", peer.value, bytes),
                                    .limit = "all ranks must use the same",
                                    .advice = advice});
}

// `what` must be the same here and there, in the plural: "channels".
inline void check_same(const char* what, bool is_same, Rank peer, const std::string& where, std::string values,
                       const char* advice) {
  if (is_same) return;
  throw Error(ErrorKind::mismatch, {.what = fmt::format("this rank and rank {} have different {}", peer.value, what),
                                    .where = where,
                                    .values = std::move(values),
                                    .advice = advice});
}

}  // namespace tilewire
