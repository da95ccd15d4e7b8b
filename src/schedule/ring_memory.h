// How a command ring lies in memory, shared by both sides: one header, then the entries. Plain integers, so that it can
// lie in pinned memory; both sides touch them with atomic accesses only. transport/command_queue.h has the protocol and
// the host's two sides of it, device/comm/ring_ends.cuh those of a kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "schedule/wire.h"

namespace tilewire {

struct RingHeader {
  // Two cache lines a field: neighbouring lines are fetched in pairs.
  alignas(128) uint64_t tail = 0;  // commands the consumer has taken; written by the consumer, read by the producer
};
static_assert(sizeof(RingHeader) == 128);

// A header and entries at a place of their own. In an entry each word shows the lap that it was written in.
template <class Header, class Entry>
struct LapRing {
  Header* header = nullptr;
  Entry* entries = nullptr;
  uint32_t entry_count = 0;  // a power of two
  uint32_t log2_entries = 0;

  static constexpr size_t bytes(uint32_t entry_count) { return sizeof(Header) + size_t{entry_count} * sizeof(Entry); }
  // The ring at `base`: bytes(entry_count) of zeros, aligned as the header is. `entry_count` is a power of two.
  static LapRing at(void* base, uint32_t entry_count) {
    static_assert(sizeof(Header) % alignof(Entry) == 0);
    uint32_t log2_entries = 0;
    while ((uint32_t{1} << log2_entries) < entry_count) ++log2_entries;
    auto* header = static_cast<Header*>(base);
    return {header, reinterpret_cast<Entry*>(header + 1), entry_count, log2_entries};
  }
  // The lap bit that entry number `position` (counted from 0, over all laps) carries once it is written. Memory starts
  // as zeros, so the first lap's parity is 1.
  TILEWIRE_HD constexpr uint64_t lap_bit(uint64_t position) const {
    return ((position >> log2_entries) & 1) == 0 ? kLapBit : 0;
  }
  TILEWIRE_HD constexpr Entry& entry(uint64_t position) const { return entries[position & (entry_count - 1)]; }
};

using RingMemory = LapRing<RingHeader, PackedCommand>;

}  // namespace tilewire
