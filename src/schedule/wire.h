// The records that cross between a role, its proxy and other ranks, each with one pack/unpack pair for all sides.
// Every field is range-checked where a plan or communicator is made (see
// CommandLimits, check_limits() and the ops' plans); pack() itself trusts its input.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace tilewire {

inline constexpr int kWireUnitBytes = 16;  // offsets and lengths on the wire count these units

// What a role asks its proxy to do. Indices only, so that the proxy can check each one.
enum class CommandKind : uint8_t {
  write = 0,     // copy data into the same half of the peer's arena, then publish the flag there
  signal = 1,    // publish the flag at the peer, no data
  call_end = 2,  // the last command of this ring in this call
};

struct Command {
  CommandKind kind = CommandKind::write;
  Rank peer{};             // write, signal
  uint32_t word = 0;       // write, signal: index of the flag word in the peer's flag area
  uint32_t units = 0;      // write: length
  bool from_user = false;  // write: source lies in the user area, else in the half of this call
  uint64_t src_unit = 0;   // write: from the start of that area
  uint64_t dst_unit = 0;   // write: from the start of the half of this call in the peer's arena
  Epoch epoch = 0;         // call_end only: the call that ends

  friend TILEWIRE_HD constexpr bool operator==(const Command& a, const Command& b) {
    return a.kind == b.kind && a.peer == b.peer && a.word == b.word && a.units == b.units &&
           a.from_user == b.from_user && a.src_unit == b.src_unit && a.dst_unit == b.dst_unit && a.epoch == b.epoch;
  }
};

// Bits of the two 64-bit halves of a packed command. Bit 63 of both is the lap parity, written by the ring.
struct CommandBits {
  static constexpr int kKind = 2, kPeer = 12, kWord = 21, kUnits = 24, kSrc = 33, kDst = 33;
  static constexpr int kSrcHigh = 3;               // upper bits of src in the first half, the rest in the second
  static constexpr int kSrcLow = kSrc - kSrcHigh;  // 30
  static_assert(kKind + kPeer + kWord + kUnits + kSrcHigh + 1 == 63);
  static_assert(kSrcLow + kDst == 63);
  static constexpr int kEpochLow = 60;  // call_end: epochs below 2^60
};

struct alignas(16) PackedCommand {
  uint64_t first = 0;
  uint64_t second = 0;
};

inline constexpr uint64_t kLapBit = uint64_t{1} << 63;

// Largest legal values, for the checks.
struct CommandLimits {
  static constexpr int64_t kRanks = int64_t{1} << CommandBits::kPeer;
  static constexpr int64_t kWords = int64_t{1} << CommandBits::kWord;
  static constexpr int64_t kUnits = (int64_t{1} << CommandBits::kUnits) - 1;
  static constexpr int64_t kChunkBytes = kUnits * kWireUnitBytes;
  static constexpr int64_t kAreaBytes = (int64_t{1} << CommandBits::kDst) * kWireUnitBytes;
  static constexpr Epoch kEpochs = Epoch{1} << CommandBits::kEpochLow;
};

TILEWIRE_HD constexpr uint64_t low_bits(uint64_t v, int bits) { return v & ((uint64_t{1} << bits) - 1); }

// Whether each field fits its bits.
TILEWIRE_HD constexpr bool fits(const Command& c) {
  if (c.kind == CommandKind::call_end) return c.epoch < CommandLimits::kEpochs;
  if (c.peer.value < 0 || c.peer.value >= CommandLimits::kRanks || c.word >= CommandLimits::kWords) return false;
  if (c.kind == CommandKind::signal) return true;
  return c.units >= 1 && c.units <= CommandLimits::kUnits && (c.src_unit >> CommandBits::kSrc) == 0 &&
         (c.dst_unit >> CommandBits::kDst) == 0;
}

TILEWIRE_HD constexpr PackedCommand pack(const Command& c) {
  using B = CommandBits;
  const uint64_t kind = static_cast<uint64_t>(c.kind);
  if (c.kind == CommandKind::call_end) return {kind | (c.epoch << B::kKind), 0};
  uint64_t first = kind;
  int at = B::kKind;
  first |= static_cast<uint64_t>(c.peer.value) << at;
  at += B::kPeer;
  first |= static_cast<uint64_t>(c.word) << at;
  at += B::kWord;
  first |= static_cast<uint64_t>(c.units) << at;
  at += B::kUnits;
  first |= static_cast<uint64_t>(c.from_user) << at;
  at += 1;
  first |= (c.src_unit >> B::kSrcLow) << at;
  return {first, low_bits(c.src_unit, B::kSrcLow) | (c.dst_unit << B::kSrcLow)};
}

TILEWIRE_HD constexpr Command unpack(PackedCommand p) {
  using B = CommandBits;
  p.first &= ~kLapBit;
  p.second &= ~kLapBit;
  Command c;
  c.kind = static_cast<CommandKind>(low_bits(p.first, B::kKind));
  int at = B::kKind;
  if (c.kind == CommandKind::call_end) {
    c.epoch = low_bits(p.first >> at, B::kEpochLow);
    return c;
  }
  c.peer = Rank{static_cast<int32_t>(low_bits(p.first >> at, B::kPeer))};
  at += B::kPeer;
  c.word = static_cast<uint32_t>(low_bits(p.first >> at, B::kWord));
  at += B::kWord;
  c.units = static_cast<uint32_t>(low_bits(p.first >> at, B::kUnits));
  at += B::kUnits;
  c.from_user = low_bits(p.first >> at, 1) != 0;
  at += 1;
  c.src_unit = (low_bits(p.first >> at, B::kSrcHigh) << B::kSrcLow) | low_bits(p.second, B::kSrcLow);
  c.dst_unit = low_bits(p.second >> B::kSrcLow, B::kDst);
  return c;
}

// The 32-bit immediate of a counted arrival: which word, and the low bits of the epoch it is for.
struct Immediate {
  uint32_t word = 0;
  Epoch epoch = 0;
};

inline constexpr int kImmediateEpochBits = 32 - CommandBits::kWord;

TILEWIRE_HD constexpr uint32_t pack(const Immediate& i) {
  return i.word | (static_cast<uint32_t>(low_bits(i.epoch, kImmediateEpochBits)) << CommandBits::kWord);
}
// `near` is any epoch that differs from the true one by less than half the range of the narrow field; the epoch of the
// call in progress always does, since a peer is at most one call ahead.
TILEWIRE_HD constexpr Immediate unpack_immediate(uint32_t bits, Epoch near) {
  constexpr uint64_t kRange = uint64_t{1} << kImmediateEpochBits;
  const uint64_t low = bits >> CommandBits::kWord;
  uint64_t epoch = (near & ~(kRange - 1)) | low;
  if (epoch + kRange / 2 < near) {
    epoch += kRange;
  } else if (epoch > near + kRange / 2 && epoch >= kRange) {
    epoch -= kRange;
  }
  return {static_cast<uint32_t>(low_bits(bits, CommandBits::kWord)), epoch};
}

// What every rank sends first in every call, so that ranks that disagree find out before they use each other's data.
struct CallRecord {
  uint64_t agreed_hash = 0;  // op, agreed sizes and row counts, dtypes, shared part of the plan
  uint64_t sequence = 0;     // how many calls were tried on this communicator

  friend TILEWIRE_HD constexpr bool operator==(const CallRecord& a, const CallRecord& b) {
    return a.agreed_hash == b.agreed_hash && a.sequence == b.sequence;
  }
};
static_assert(sizeof(CallRecord) == kWireUnitBytes);

}  // namespace tilewire
