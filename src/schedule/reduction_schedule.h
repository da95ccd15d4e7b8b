// Where a matrix that is summed over ranks is on its way, as one rank sees it: slots, words, needs. For the roles of
// reduction_roles.h and those of the ops.
#pragma once

#include <cstdint>

#include "schedule/call_roles.h"
#include "schedule/reduction_flags.h"
#include "schedule/reduction_map.h"
#include "schedule/role.h"

namespace tilewire {

// All that the roles of one rank look at; an op's Schedule derives from it. The tables behind it belong to the plan.
struct ReductionSchedule {
  CallFrame frame;
  ReductionMap map;
  ReductionBuffers buffers;
  int32_t workers = 1;         // compute workers of this rank
  int32_t reduce_workers = 1;  // of reduce, of finish, and of collect where there is one
  bool is_fused = true;        // false: nothing is added up before all own chunks are made

  TILEWIRE_HD constexpr const Topology& topology() const { return frame.topology; }
  TILEWIRE_HD constexpr Rank me() const { return frame.me; }
  TILEWIRE_HD constexpr Node here() const { return frame.topology.node(frame.me); }
  TILEWIRE_HD constexpr int32_t width() const { return frame.topology.ranks_on(here()); }
  TILEWIRE_HD constexpr Rank source(int32_t i) const { return frame.topology.rank_at(here(), LocalRank{i}); }
  // Who takes the own node's partial sums of an owner's chunks.
  TILEWIRE_HD constexpr Rank taker(Rank owner) const { return frame.topology.rail_partner(owner, here()); }
  // Who sends the own chunks' node sum of the i-th other node, in node order.
  TILEWIRE_HD constexpr Node other_node(int32_t i) const { return Node{i < here().value ? i : i + 1}; }
  TILEWIRE_HD constexpr Rank sender(int32_t i) const { return frame.topology.rail_partner(frame.me, other_node(i)); }
  // The same of any chunk that is finished here.
  TILEWIRE_HD constexpr Rank sum_sender(int32_t i, OwnedChunk) const { return sender(i); }
  TILEWIRE_HD constexpr int32_t other_nodes() const { return frame.topology.nodes - 1; }

  TILEWIRE_HD constexpr int64_t partial_bytes(OwnedChunk c) const {
    return map.rows(c).rows() * ReductionBuffers::pitch_bytes(map.columns(c), buffers.partial_bytes);
  }
  TILEWIRE_HD constexpr int64_t sum_bytes(OwnedChunk c) const {
    return map.rows(c).rows() * ReductionBuffers::pitch_bytes(map.columns(c), buffers.sum_bytes);
  }
  // The slot at taker(c.owner) of the partial sum of a rank of the own node.
  TILEWIRE_HD constexpr int64_t partial_slot(Rank source, OwnedChunk c) const {
    const int64_t slots = map.source_slots[frame.topology.local(taker(c.owner)).value];
    return frame.topology.local(source).value * slots + map.rail_slot[c.owner.value] + map.slot(c);
  }
  // The same from the start of its half.
  TILEWIRE_HD constexpr int64_t partial_offset(Rank source, OwnedChunk c) const {
    return buffers.partial_offset(partial_slot(source, c));
  }
  // Who stores whole slots sees those of chunks that end with the last column as one array, all others as another one.
  TILEWIRE_HD constexpr bool is_last(const ColumnRange& columns) const { return columns.end == map.cols; }
  struct SlotShape {
    int64_t rows = 0;
    int64_t cols = 0;
    int64_t pitch_bytes = 0;
  };
  TILEWIRE_HD constexpr SlotShape partial_slot_shape(bool is_last) const {
    const int64_t cols = is_last ? map.last_cols() : map.chunk_cols;
    return {map.chunk_rows(), cols, ReductionBuffers::pitch_bytes({0, cols}, buffers.partial_bytes)};
  }
  // Whether every rank of the node takes each partial sum, in a slot of that number.
  TILEWIRE_HD constexpr bool all_take() const { return false; }
  // A number for each chunk that is added up here, below sums().
  TILEWIRE_HD constexpr int32_t sum_number(OwnedChunk c) const { return map.rail_number(c).value; }
  TILEWIRE_HD constexpr int32_t sums() const { return map.rail_chunks + map.chunks_of(me()); }
  // In the own half, of a chunk of the own rail.
  TILEWIRE_HD constexpr int64_t sent_offset(OwnedChunk c) const {
    return buffers.sent_offset(map.rail_number(c).value);
  }
  // In the half of the owner: the node sum of a node that is not the owner's.
  TILEWIRE_HD constexpr int64_t received_offset(Node from, OwnedChunk c) const {
    const int32_t place = from.value - (from < frame.topology.node(c.owner) ? 0 : 1);
    return buffers.received_offset(int64_t{place} * map.slots_of(c.owner) + map.slot(c));
  }

  TILEWIRE_HD constexpr Need begun(Rank rank) const { return {frame.arena.flags.begun(rank), 0}; }
  TILEWIRE_HD constexpr Need need(int32_t family, Rank rank, Chunk chunk) const {
    return {buffers.word(family, rank, chunk), 0};
  }
  // The i-th need of whoever adds up the own node's partial sums of a chunk; two a source.
  TILEWIRE_HD constexpr Need partial_need(OwnedChunk c, int32_t i) const {
    return i % 2 == 0 ? begun(source(i / 2)) : need(kPartialArrived, source(i / 2), map.rail_number(c));
  }
  // The own slots at the other ranks' of the node, and at the own.
  TILEWIRE_HD constexpr Publish slot_free(OwnedChunk c, int32_t i) const {
    return {source(i), buffers.word(kSlotFree, c.owner, c.chunk)};
  }
  // What the first piece of work behind compute waits for where the plan is not fused: the i-th own chunk.
  TILEWIRE_HD constexpr int32_t made_needs() const { return is_fused ? 0 : map.total_chunks(); }
  TILEWIRE_HD constexpr Need made_need(int32_t i) const {
    const OwnedChunk c = map.at(i);
    return need(kChunkMade, c.owner, c.chunk);
  }
};

}  // namespace tilewire
