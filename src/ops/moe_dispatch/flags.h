// THE list of flags and buffers of MoE dispatch. Sizes, offsets, the dump of a stuck call and the tables of the README
// follow from it.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "ops/moe_dispatch/routing.h"
#include "schedule/arena_layout.h"
#include "schedule/topology.h"

namespace tilewire::moe_dispatch {

// Word families (see FlagLayout::chunk). `r` is a round, `p` a piece of the reader's experts, `t` a piece of what goes to
// a node.
//   counted(s, 0)          s's counts lie in this rank's half
//                          written by: s inside a node; on the rail entry rank by the network; elsewhere by the entry
//                          rank's forward role
//                          read by: route, send (own), forward (entry rank)
//   routed(me, 0)          this rank's tables are made
//                          written by: own route role; read by: all roles that move rows
//   arrived(s, r, p)       s's rows of round r for the experts of piece p are here; where there are none, no such word
//                          written by: s inside a node, else the entry rank's forward role; read by: compute, drain
//   packed(n, r, t)        own tokens for node n lie in the outbox
//                          written by: own pack role; read by: send
//   staged(s, r, t)        s's tokens for this node lie in the staging buffer here
//                          written by: the network; read by: forward
//   forwarded(s, r)        s's tokens of round r have gone to the ranks of this node
//                          written by: own forward role; read by: send. Where the slot is used again
//   unstaged(p, r)         what rail partner p staged of this rank in round r is free again
//                          written by: the network, for p; read by: send, drain. Likewise
//   computed(w, r)         worker w has read its last row of round r
//                          written by: own compute role; read by: release. Likewise
//   taken(d, r)            local rank d has read all rows of round r
//                          written by: d's release role; read by: push, forward, drain. Likewise
inline constexpr int32_t kCounted = 0, kRouted = 1, kArrived = 2, kPacked = 3, kStaged = 4, kForwarded = 5,
                         kUnstaged = 6, kComputed = 7, kTaken = 8;
inline constexpr int32_t kFamilies = 9;
static_assert(kFamilies <= kWordFamilies, "a rank has fewer word families: raise kWordFamilies");
inline constexpr const char* kFamilyNames[kWordFamilies] = {"counted",   "routed",   "arrived",  "packed", "staged",
                                                            "forwarded", "unstaged", "computed", "taken"};

// In front of a token that goes to another node: which of its source it is, and then of each slot HeaderSlot.
struct HeaderSlot {
  int32_t place = -1;  // of its expert among those of the receiving node; -1: it is on another one, or there is none
  int32_t number = 0;  // of the row among those of its source and round for that expert
};
TILEWIRE_HD constexpr int64_t header_bytes(int32_t top_k) {
  return round_up(int64_t{sizeof(int32_t)} + top_k * int64_t{sizeof(HeaderSlot)}, kWireUnitBytes);
}

// What the header of a record says before its counts, in words of 32 bits: the tokens of its rank.
inline constexpr int32_t kRecordHead = 4;
// Of a row, beside its elements: which token of its source it is, and which of the token's experts it is for.
struct RowOrigin {
  int32_t token = 0;
  int32_t slot = 0;
};

// Buffers in a half, behind the call records. Slots of a round are used again `window` rounds later, but for the outbox.
//   records   [ranks]                             what each rank has counted: for each of its rounds, rows for each
//                                                 expert and tokens for each node
//   tables    routing_bytes()                     the tables that a rank makes of its tokens and of all records
//                                                 (routing.h); nobody else looks at them
//   rows      [window, slot rows, row pitch]      dispatched rows of a round, each expert's together
//   origins   [window, slot rows]                 RowOrigin of each
//   outbox    [tokens of the call, token pitch]   own tokens for other nodes by round and node, each behind its header.
//                                                 The network may read them until `sent`, so no slot is used twice
//   staging   [sources that enter here, window, block, token pitch]
struct Buffers {
  ArenaLayout arena;
  int64_t record_bytes = 0;  // room for the record of a rank
  RoutingLimits tables;
  int64_t tables_bytes = 0;
  int64_t row_pitch = 0;
  int64_t token_pitch = 0;  // header and row
  int64_t slot_rows = 0;    // of a round at a receiver
  int64_t block_tokens = 0;
  int32_t window = 1;
  int64_t outbox_tokens = 0;
  int32_t entries = 0;  // most sources that enter a node by the same rank

  TILEWIRE_HD constexpr int64_t record_offset(Rank s) const { return arena.data_offset() + s.value * record_bytes; }
  TILEWIRE_HD constexpr int64_t tables_offset() const { return record_offset(Rank{arena.flags.ranks}); }
  TILEWIRE_HD constexpr int64_t rows_offset(int32_t round, int64_t row) const {
    return tables_end() + (round % window * slot_rows + row) * row_pitch;
  }
  TILEWIRE_HD constexpr int64_t origins_offset(int32_t round, int64_t row) const {
    return rows_end() + (round % window * slot_rows + row) * int64_t{sizeof(RowOrigin)};
  }
  TILEWIRE_HD constexpr int64_t outbox_offset(int64_t token) const { return origins_end() + token * token_pitch; }
  TILEWIRE_HD constexpr int64_t staging_offset(int32_t entry, int32_t round, int64_t token) const {
    return outbox_offset(outbox_tokens) +
           ((int64_t{entry} * window + round % window) * block_tokens + token) * token_pitch;
  }
  TILEWIRE_HD constexpr int64_t end() const { return staging_offset(entries, 0, 0); }

 private:
  TILEWIRE_HD constexpr int64_t tables_end() const { return tables_offset() + tables_bytes; }
  TILEWIRE_HD constexpr int64_t rows_end() const { return tables_end() + window * slot_rows * row_pitch; }
  TILEWIRE_HD constexpr int64_t origins_end() const {
    return round_up(rows_end() + window * slot_rows * int64_t{sizeof(RowOrigin)}, kWireUnitBytes);
  }
};

}  // namespace tilewire::moe_dispatch
