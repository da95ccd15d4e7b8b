// What ranks and the wire process between their nodes tell each other, a packet each (bootstrap/fd_packet.h):
//
//   rank -> wire   hello      library version, a random challenge
//   wire -> rank   challenge  library version, a random challenge, the wire's proof
//   rank -> wire   join       which job and rank, sizes, a proof over it; with the memory file of the rank's wire ring
//   wire -> rank   busy       ranks of another communicator have not left yet: an answer will come
//                  joined     the GPU of the wire, and how many CTAs it runs there
//   rank -> wire   piece      a piece of the rank's arena, with its descriptor
//   wire -> rank   mapped     behind the last piece of several
//   one rank       start      when the pieces of all have been mapped; with the page of the roll-call where there is one
//   wire -> rank   started    its CTAs have come, and it moves data
//   wire -> rank   failed     instead of any answer, and at any time: what is wrong; the connection ends
//
// A rank leaves by closing its connection. A proof is an HMAC under a key of the job's secret over a label, both
// challenges and the content. The first fields of hello and challenge never change.
#pragma once

#include <tilewire/error.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "memory/arena.h"
#include "memory/gpu_id.h"
#include "transport/bootstrap/byte_codec.h"
#include "transport/bootstrap/job.h"
#include "transport/bootstrap/sha256.h"

namespace tilewire {

enum class WirePacket : uint8_t { hello = 1, challenge, join, busy, joined, piece, mapped, start, started, failed };

// The kind of a packet; what follows it goes to the unpack() of that kind. Throws Error(mismatch) for an empty one.
WirePacket kind_of(std::span<const std::byte> packet);
Bytes pack(WirePacket kind);  // of a packet that is its kind alone

using WireChallenge = std::array<std::byte, 32>;

// What both sides know once the challenges are exchanged.
struct WireKeys {
  std::string secret;
  WireChallenge from_rank{};
  WireChallenge from_wire{};

  Digest proof(std::string_view label, std::span<const std::byte> content) const;
};

struct WireHello {
  std::string version;  // of the library
  WireChallenge challenge{};

  Bytes pack() const;
  // This and the other unpack(): of a whole packet. Throw Error(internal, mismatch) for what is none of that kind.
  static WireHello unpack(std::span<const std::byte> packet);
};

struct WireAnswer {  // the packet `challenge`
  std::string version;
  WireChallenge challenge{};
  Digest proof{};

  Bytes pack() const;
  static WireAnswer unpack(std::span<const std::byte> packet);
};

struct WireJoin {
  Nonce job{};
  Rank rank{};
  int32_t ranks = 0;
  int64_t arena_bytes = 0;    // reserved; the same on all ranks
  uint32_t ring_entries = 0;  // of the wire ring
  Digest proof{};             // over content()

  Bytes content() const;
  Bytes pack() const;
  static WireJoin unpack(std::span<const std::byte> packet);
};

struct WirePlace {  // the packet `joined`
  GpuId gpu{};
  int32_t ctas = 0;

  Bytes pack() const;
  static WirePlace unpack(std::span<const std::byte> packet);
};

struct WirePiece {
  ArenaRange range;
  bool is_last = false;

  Bytes pack() const;
  static WirePiece unpack(std::span<const std::byte> packet);
};

struct WireStart {
  int32_t participant = 0;  // the wire's number in the roll-call
  int32_t expected = 0;     // CTAs of all together; 0: there is no roll-call

  Bytes pack() const;
  static WireStart unpack(std::span<const std::byte> packet);
};

struct WireFailure {
  ErrorKind kind = ErrorKind::internal;
  std::string text;  // cut where it is too long for a packet

  Bytes pack() const;
  static WireFailure unpack(std::span<const std::byte> packet);
};

}  // namespace tilewire
