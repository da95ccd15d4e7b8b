// The emulated wire between GPUs of one machine: a rank's proxy says what goes where, a copy kernel moves it
// (device/wire/). How the ring between the two lies in pinned memory. One producer and one consumer; an entry is there
// once all its words show the lap bit of their lap, as in a command ring.
#pragma once

#include <cstddef>
#include <cstdint>

#include "schedule/ring_memory.h"

namespace tilewire {

// What the wire moves for a rank: bytes from its arena, or a value, into the arena of a peer.
struct WireMove {
  Rank peer;
  bool is_value = false;
  uint32_t units = 0;       // of kWireUnitBytes; no value
  uint64_t src_offset = 0;  // into the own arena; no value
  uint64_t dst_offset = 0;  // into the peer's arena
  uint64_t value = 0;       // below 2^63

  friend TILEWIRE_HD constexpr bool operator==(const WireMove& a, const WireMove& b) {
    return a.peer == b.peer && a.is_value == b.is_value && a.units == b.units && a.src_offset == b.src_offset &&
           a.dst_offset == b.dst_offset && a.value == b.value;
  }
};

struct alignas(32) WireEntry {
  uint64_t words[4] = {};
};

// `lap`: the lap bit of the entry, in each word.
TILEWIRE_HD constexpr WireEntry pack(const WireMove& m, uint64_t lap) {
  const uint64_t route = static_cast<uint64_t>(m.is_value) | (static_cast<uint64_t>(m.peer.value) << 1) |
                         (static_cast<uint64_t>(m.units) << (1 + CommandBits::kPeer));
  return {{route | lap, m.src_offset | lap, m.dst_offset | lap, m.value | lap}};
}
TILEWIRE_HD constexpr bool is_there(const WireEntry& e, uint64_t lap) {
  return ((e.words[0] ^ lap) & kLapBit) == 0 && ((e.words[1] ^ lap) & kLapBit) == 0 &&
         ((e.words[2] ^ lap) & kLapBit) == 0 && ((e.words[3] ^ lap) & kLapBit) == 0;
}
TILEWIRE_HD constexpr WireMove unpack(const WireEntry& e) {
  const uint64_t route = e.words[0] & ~kLapBit;
  return {Rank{static_cast<int32_t>(low_bits(route >> 1, CommandBits::kPeer))},
          (route & 1) != 0,
          static_cast<uint32_t>(route >> (1 + CommandBits::kPeer)),
          e.words[1] & ~kLapBit,
          e.words[2] & ~kLapBit,
          e.words[3] & ~kLapBit};
}

struct WireRingHeader {
  alignas(128) uint64_t landed = 0;  // moves that are in place, in order; written by the wire
  alignas(128) uint64_t stop = 0;    // written by who runs the wire: leave, whatever is still in the ring
};

using WireRing = LapRing<WireRingHeader, WireEntry>;

// CTAs, and so SMs, of the wire that serves so many rings: one each, in pairs, as the kernels beside it take them.
constexpr int32_t wire_ctas(int32_t rings) { return (rings + 1) / 2 * 2; }

}  // namespace tilewire
