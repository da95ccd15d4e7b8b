// THE list of flags and buffers of ring attention. Sizes, offsets, the dump of a stuck call and the tables of the README
// follow from it.
#pragma once

#include <cstdint>

#include "schedule/arena_layout.h"
#include "schedule/chunk_map.h"

namespace tilewire::attention {

// Word families (see FlagLayout::chunk). A unit is what has a slot: a pair, or in step-major order a source.
//   block_arrived(s, c)   chunk c of rank s's keys and values lies here
//                         written by: s itself inside a node (own load role for s = me); on the rail entry rank by the
//                         network; elsewhere by the entry rank's forward role
//                         read by: compute, push and send (own), forward (entry), drain
//   slot_free(r, u)       rank r needs its slot of unit u no more
//                         written by: r's release role, or r's send role by the network
//                         read by: push, send, forward, drain
//   unit_read(w, u)       compute worker w is through with unit u; read by release. Of the own rank alone, so the words
//                         of all sources are its workers'
//   unit_forwarded(me, u) all of unit u has been forwarded; read by release
//   unit_released(me, u)  the own slot of unit u is free; read by send
inline constexpr int32_t kBlockArrived = 0, kSlotFree = 1, kUnitRead = 2, kUnitForwarded = 3, kUnitReleased = 4;
inline constexpr int32_t kFamilies = 5;
static_assert(kFamilies <= kWordFamilies, "a rank has fewer word families: raise kWordFamilies");
inline constexpr const char* kFamilyNames[kWordFamilies] = {"block_arrived", "slot_free", "unit_read", "unit_forwarded",
                                                            "unit_released"};  // for errors and dumps

// Buffers in a half, behind the call records.
//   own       [pairs, own rows]  this rank's keys and values
//   received  [slots]            those of other ranks: a slot holds the rows of all of them of one pair, or in step-major
//                                order all pairs of one of them
// A chunk is a block of rows of one pair: its keys, and behind them its values.
struct Buffers {
  ArenaLayout arena;
  int64_t row_bytes = 0;       // of one row of a pair: key and value
  int64_t received_begin = 0;  // from the start of the half
  int64_t slot_bytes = 0;

  TILEWIRE_HD constexpr uint32_t word(int32_t family, Rank rank, Chunk chunk) const {
    return arena.flags.chunk(family, rank, chunk);
  }
  TILEWIRE_HD constexpr uint32_t unit_read(int64_t number) const {
    const int64_t chunks = arena.flags.max_chunks;
    return word(kUnitRead, Rank{static_cast<int32_t>(number / chunks)}, Chunk{static_cast<int32_t>(number % chunks)});
  }
  TILEWIRE_HD constexpr int64_t own_offset(int64_t row) const { return arena.data_offset() + row * row_bytes; }
  TILEWIRE_HD constexpr int64_t received_offset(int64_t slot, int64_t row) const {
    return received_begin + slot * slot_bytes + row * row_bytes;
  }
};

}  // namespace tilewire::attention
