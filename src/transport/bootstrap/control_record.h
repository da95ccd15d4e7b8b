// The messages of the control connection: one record type with one pack/unpack pair.
#pragma once

#include <tilewire/error.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/call_text.h"
#include "base/ids.h"
#include "transport/bootstrap/byte_codec.h"

namespace tilewire {

// type             direction      fields used
// heartbeat        both           -
// goodbye          to rank 0      last_ended
// left             from rank 0    rank, last_ended
// gather           to rank 0      name, call, hash, sequence, last_tried, call_text, parts[0]
// gather_result    from rank 0    sequence, parts (by rank)
// gather_failed    from rank 0    sequence, kind, text
// gather_expired   to rank 0      name, call, text (how long it waited), call_text.advice (what to do)
// step_notice      from rank 0    as gather, rank, no parts: rank waits in this gather, the receiver has not joined it
// refused          both           rank, call, text
// mismatch         to rank 0      call, rank (the peer), call_text (own), hash (of the peer's text, where that is known; or 0)
// query            from rank 0    call, hash, sequence (of the question)
// answer           to rank 0      sequence, call_text
// abort            both           rank, kind, text
enum class ControlType : uint16_t {
  heartbeat = 32,
  goodbye,
  left,
  gather,
  gather_result,
  gather_failed,
  gather_expired,
  step_notice,
  refused,
  mismatch,
  query,
  answer,
  abort,
};

struct ControlRecord {
  ControlType type = ControlType::heartbeat;
  Rank rank{};
  ErrorKind kind = ErrorKind::aborted;
  uint64_t call = 0;
  uint64_t hash = 0;
  uint64_t sequence = 0;
  uint64_t last_tried = 0;
  uint64_t last_ended = 0;
  std::string name{};
  std::string text{};
  CallText call_text{};
  std::vector<Bytes> parts{};

  // The type travels in the frame's header.
  Bytes pack() const;
  // Throws Error(internal) for an unknown type or a malformed payload.
  static ControlRecord unpack(uint16_t type, std::span<const std::byte> in);
};

}  // namespace tilewire
