// All that the roles of one rank look at, of either form; the roles are in schedule.h and one_shot_roles.h.
#pragma once

#include <cstdint>

#include "ops/gemm_ar/flags.h"
#include "schedule/reduction_schedule.h"

namespace tilewire::gemm_ar {

struct Schedule : ReductionSchedule {
  bool is_one_shot = false;
  int32_t gather_behind = 0;  // two shots: so many rounds behind the node sums finished chunks are sent
  // So many own chunks finish may wait ahead. More than results are sent behind, and each rank's results would wait for
  // sums that another one sends behind its own results.
  int32_t finishes_ahead = 0;
  int32_t result_bytes = 2;  // of an element
  int64_t result_slot_bytes = 0;
  int64_t results_begin = 0;   // from the start of the half
  int64_t finished_begin = 0;  // likewise
  int32_t result_slots = 0;    // of an owner under a window; 0: each chunk has one

  // ---- two shots: where a finished chunk lies, at every rank; at its owner that is finished_offset()
  TILEWIRE_HD constexpr int64_t result_offset(OwnedChunk c) const {
    const int64_t slot = result_slots == 0 ? map.global(c) : int64_t{c.owner.value} * result_slots + map.slot(c);
    return results_begin + slot * result_slot_bytes;
  }
  TILEWIRE_HD constexpr int64_t finished_offset(OwnedChunk c) const {
    return result_slots == 0 ? result_offset(c) : finished_begin + c.chunk.value * result_slot_bytes;
  }
  // That a rank of the own node has taken the chunk, said to its owner's rail partner here.
  TILEWIRE_HD constexpr Need taken(Rank by, OwnedChunk c) const { return need(kResultTaken, by, map.rail_number(c)); }
  TILEWIRE_HD constexpr int64_t result_chunk_bytes(OwnedChunk c) const {
    return map.rows(c).rows() * ReductionBuffers::pitch_bytes(map.columns(c), result_bytes);
  }

  // ---- one shot: chunk g of the matrix is the q-th one that one rank of each node adds up and sends, local rank g mod
  // ranks of the node
  TILEWIRE_HD constexpr int32_t width_of(Node n) const { return frame.topology.ranks_on(n); }
  TILEWIRE_HD constexpr Rank adder(Node n, int32_t g) const {
    return frame.topology.rank_at(n, LocalRank{g % width_of(n)});
  }
  TILEWIRE_HD constexpr Chunk number(Node n, int32_t g) const { return Chunk{g / width_of(n)}; }
  TILEWIRE_HD constexpr int32_t added_by(Rank r) const {
    const int32_t width_there = width_of(frame.topology.node(r)), local = frame.topology.local(r).value;
    return (map.total_chunks() - local + width_there - 1) / width_there;
  }
  TILEWIRE_HD constexpr int32_t added(Rank by, Chunk number) const {
    return number.value * width_of(frame.topology.node(by)) + frame.topology.local(by).value;
  }

  // ---- either form: slots. Those of a reduction to owners are ReductionSchedule's.
  TILEWIRE_HD constexpr int64_t partial_slot(Rank source, OwnedChunk c) const {
    if (!is_one_shot) return ReductionSchedule::partial_slot(source, c);
    return int64_t{frame.topology.local(source).value} * map.total_chunks() + map.global(c);
  }
  TILEWIRE_HD constexpr int64_t partial_offset(Rank source, OwnedChunk c) const {
    return buffers.partial_offset(partial_slot(source, c));
  }
  TILEWIRE_HD constexpr bool all_take() const { return is_one_shot; }
  TILEWIRE_HD constexpr int32_t sum_number(OwnedChunk c) const {
    return is_one_shot ? number(here(), map.global(c)).value : ReductionSchedule::sum_number(c);
  }
  TILEWIRE_HD constexpr int32_t sums() const { return is_one_shot ? added_by(me()) : ReductionSchedule::sums(); }
  TILEWIRE_HD constexpr int64_t sent_offset(OwnedChunk c) const {
    return is_one_shot ? buffers.sent_offset(number(here(), map.global(c)).value) : ReductionSchedule::sent_offset(c);
  }
  TILEWIRE_HD constexpr int64_t received_offset(Node from, OwnedChunk c) const {
    return is_one_shot ? received_at(here(), from, c) : ReductionSchedule::received_offset(from, c);
  }
  // One shot: in the half of any rank of node `at`, which is another one.
  TILEWIRE_HD constexpr int64_t received_at(Node at, Node from, OwnedChunk c) const {
    const int32_t place = from.value - (from < at ? 0 : 1);
    return buffers.received_offset(int64_t{place} * map.total_chunks() + map.global(c));
  }
  // Who has added up the i-th other node's sum of a chunk that is finished here.
  TILEWIRE_HD constexpr Rank sum_sender(int32_t i, OwnedChunk c) const {
    return is_one_shot ? adder(other_node(i), map.global(c)) : sender(i);
  }
};

}  // namespace tilewire::gemm_ar
