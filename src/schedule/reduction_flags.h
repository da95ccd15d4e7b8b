// Flags and buffers of a matrix that is summed over ranks, for the ops that do that: each op's flags.h is the list of
// what it has, these and others.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "schedule/arena_layout.h"
#include "schedule/reduction_map.h"

namespace tilewire {

// Word families (see FlagLayout::chunk). A chunk has two numbers: c among those of its owner, and q among all that its
// rail partner on a node takes.
//   partial_arrived(s, q)   rank s's partial sum lies in its slot here, at the rail partner
//                           written by: s's compute role; read by: reduce, finish (own chunks)
//   node_summed(me, q)      the sum of the own node lies in its slot here
//                           written by: reduce; read by: send
//   sum_arrived(p, c)       the sum of p's node of an own chunk lies here; p is the rail partner there
//                           written by: the network; read by: finish
//   slot_free(d, c)         where the own partial sum of owner d's chunk c lay may be written again, at d's rail partner
//                           written by: its reduce (finish where it is d); read by: compute. Only under a window
//   chunk_finished(me, c)   the own chunk is finished
//                           written by: finish; read by: send. Only under a window
//   sum_slot_free(d, c)     where the node sum of owner d's chunk c lay may be written again, at d
//                           written by: the network, for d's send role; read by: send. Only under a window
//   chunk_made(d, c)        the own partial sum of owner d's chunk is made
//                           written by: compute; read by: reduce, finish, drain. Only where the plan is not fused
inline constexpr int32_t kPartialArrived = 0, kNodeSummed = 1, kSumArrived = 2, kSlotFree = 3, kChunkFinished = 4,
                         kSumSlotFree = 5, kChunkMade = 6;
inline constexpr int32_t kReductionFamilies = 7;
inline constexpr const char* kReductionFamilyNames[kWordFamilies] = {
    "partial_arrived", "node_summed", "sum_arrived", "slot_free", "chunk_finished", "sum_slot_free", "chunk_made"};

// Buffers in a half, behind the call records. A slot holds a chunk of at most chunk_rows x chunk_cols elements; a chunk's
// rows lie one behind the other, each rounded up to 16 bytes.
//   partials   [sources of the node, slots of the rail]      partial sums of the own node
//   sent       [chunks of the rail, the own ones aside]      node sums; a network may read one until sent(e), so none is
//                                                            used twice
//   received   [other nodes, slots of an owner]              node sums of the own rows
struct ReductionBuffers {
  ArenaLayout arena;
  int32_t partial_bytes = 2;  // of an element
  int32_t sum_bytes = 2;
  int64_t partial_slot_bytes = 0;
  int64_t sum_slot_bytes = 0;
  int64_t sent_begin = 0;  // from the start of the half
  int64_t received_begin = 0;

  TILEWIRE_HD static constexpr int64_t pitch_bytes(const ColumnRange& columns, int32_t element_bytes) {
    return (columns.cols() * element_bytes + kWireUnitBytes - 1) / kWireUnitBytes * kWireUnitBytes;
  }
  TILEWIRE_HD constexpr uint32_t word(int32_t family, Rank rank, Chunk chunk) const {
    return arena.flags.chunk(family, rank, chunk);
  }
  // From the start of the half.
  TILEWIRE_HD constexpr int64_t partial_offset(int64_t slot) const {
    return arena.data_offset() + slot * partial_slot_bytes;
  }
  TILEWIRE_HD constexpr int64_t sent_offset(int64_t slot) const { return sent_begin + slot * sum_slot_bytes; }
  TILEWIRE_HD constexpr int64_t received_offset(int64_t slot) const { return received_begin + slot * sum_slot_bytes; }
};

}  // namespace tilewire
