// The roles of a matrix that is summed over ranks, for the ops that do that; each op says in its schedule.h which of them
// it has.
//
//   PartialSumRole      multiplies chunks, in rounds, and leaves each in a slot at the rail partner of its owner
//   NodeSumRole         on the rail partner: adds the partial sums of the own node, in rank order, for owners on other
//                       nodes
//   SumSendRole         hands node sums to the proxy; under a window also tells other nodes which slots here are free again
//   OwnedSumRole        adds the node sums of own chunks, in node order
//   ReductionDrainRole  acquires what no other role has waited for
#pragma once

#include <cstdint>

#include "schedule/call_roles.h"
#include "schedule/reduction_schedule.h"
#include "schedule/role.h"
#include "schedule/wire.h"

namespace tilewire {

// A partial sum of a chunk.
struct PartialSumWork : WorkBase {
  OwnedChunk chunk;
};

class PartialSumRole {
 public:
  using Work = PartialSumWork;
  TILEWIRE_HD constexpr PartialSumRole(const ReductionSchedule& s, int32_t worker) : s_(s), at_(worker) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    if (at_ >= s_.map.total_chunks()) return false;
    w = Work{};
    w.chunk = s_.map.at(s_.map.order[at_]);
    w.needs = s_.map.follows_in_slot(w.chunk) ? 1 : 0;
    w.publishes = s_.is_fused ? 1 : 2;
    at_ += s_.workers;
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t) const {
    return s_.need(kSlotFree, w.chunk.owner, s_.map.before_in_slot(w.chunk).chunk);
  }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t i) const {
    if (i == 0)
      return {s_.taker(w.chunk.owner), s_.buffers.word(kPartialArrived, s_.me(), s_.map.rail_number(w.chunk))};
    return {s_.me(), s_.buffers.word(kChunkMade, w.chunk.owner, w.chunk.chunk)};
  }

 private:
  Kept<ReductionSchedule> s_;
  int32_t at_;
};

// A chunk of which the own node's partial sums are added up.
struct NodeSumWork : WorkBase {
  OwnedChunk chunk;
};

class NodeSumRole {
 public:
  using Work = NodeSumWork;
  TILEWIRE_HD constexpr NodeSumRole(const ReductionSchedule& s, int32_t worker) : s_(s), at_(worker), first_(worker) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    if (at_ >= s_.map.rail_chunks) return false;
    w = Work{};
    w.chunk = s_.map.at(s_.map.rail_order[at_]);
    w.needs = 2 * s_.width() + (at_ == first_ ? s_.made_needs() : 0);
    w.publishes = 1 + (s_.map.frees_slot(w.chunk) ? s_.width() : 0);
    at_ += s_.reduce_workers;
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    if (i < 2 * s_.width()) return s_.partial_need(w.chunk, i);
    return s_.made_need(i - 2 * s_.width());
  }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t i) const {
    if (i == 0) return {s_.me(), s_.buffers.word(kNodeSummed, s_.me(), s_.map.rail_number(w.chunk))};
    return s_.slot_free(w.chunk, i - 1);
  }

 private:
  Kept<ReductionSchedule> s_;
  int32_t at_;
  int32_t first_;
};

// A command for the proxy: a node sum for its owner, or the word that a slot here is free again, or the end of the ring.
struct SumSendWork : WorkBase {
  OwnedChunk chunk;
  Command command;
};

// Node sums in rounds. The word for own chunk c goes behind those of round c + half a window: early enough for whoever
// waits for it before round c + window, and late enough that the chunk should be finished by then. The end of the ring
// is for the role that walks this.
class SumSendWalk {
 public:
  TILEWIRE_HD explicit constexpr SumSendWalk(const ReductionSchedule& s)
      : s_(s), freeing_(freeing_of(s)), behind_((s.map.window - 1) / 2) {}

  // When the next command is due, in rounds: a node sum in its own, the word for a free slot in the one of which it is
  // said above. INT32_MAX behind the last command. For roles that give others between them.
  TILEWIRE_HD constexpr int64_t time() const { return frees() ? int64_t{freed_} + behind_ : round(); }
  // Whether it is the word for a free slot.
  TILEWIRE_HD constexpr bool frees() const { return is_freeing_before(round()); }
  TILEWIRE_HD constexpr bool next(SumSendWork& w) {
    w = SumSendWork{};
    const bool has_sum = at_ < s_.map.rail_chunks;
    const OwnedChunk sum = has_sum ? s_.map.at(s_.map.rail_order[at_]) : OwnedChunk{};
    if (is_freeing_before(has_sum ? sum.chunk.value : INT32_MAX)) return free_slot(w);
    if (!has_sum) return false;
    ++at_;
    w.needs = 1 + (s_.map.follows_in_slot(sum) ? 1 : 0);
    w.chunk = sum;
    w.command = write(sum);
    return true;
  }
  TILEWIRE_HD constexpr Need need(const SumSendWork& w, int32_t i) const {
    if (w.command.kind == CommandKind::signal) return s_.need(kChunkFinished, s_.me(), w.chunk.chunk);
    if (i == 0) return s_.need(kNodeSummed, s_.me(), s_.map.rail_number(w.chunk));
    return s_.need(kSumSlotFree, w.chunk.owner, s_.map.before_in_slot(w.chunk).chunk);
  }

 private:
  // How many own chunks' slots are used again.
  TILEWIRE_HD static constexpr int32_t freeing_of(const ReductionSchedule& s) {
    const int32_t own = s.map.chunks_of(s.me());
    return own > s.map.window ? own - s.map.window : 0;
  }
  TILEWIRE_HD constexpr int64_t round() const {
    return at_ < s_.map.rail_chunks ? s_.map.at(s_.map.rail_order[at_]).chunk.value : INT32_MAX;
  }
  TILEWIRE_HD constexpr bool is_freeing_before(int64_t round) const {
    return freed_ < freeing_ && int64_t{freed_} + behind_ < round;
  }
  TILEWIRE_HD constexpr bool free_slot(SumSendWork& w) {
    w.needs = 1;
    w.chunk = {s_.me(), Chunk{freed_}};
    w.command = {.kind = CommandKind::signal,
                 .peer = s_.sender(node_),
                 .word = s_.buffers.word(kSumSlotFree, s_.me(), w.chunk.chunk)};
    if (++node_ == s_.other_nodes()) {
      node_ = 0;
      ++freed_;
    }
    return true;
  }
  TILEWIRE_HD constexpr Command write(OwnedChunk c) const {
    return {.kind = CommandKind::write,
            .peer = c.owner,
            .word = s_.buffers.word(kSumArrived, s_.me(), c.chunk),
            .units = static_cast<uint32_t>(s_.sum_bytes(c) / kWireUnitBytes),
            .src_unit = static_cast<uint64_t>(s_.sent_offset(c)) / kWireUnitBytes,
            .dst_unit = static_cast<uint64_t>(s_.received_offset(s_.here(), c)) / kWireUnitBytes};
  }

  Kept<ReductionSchedule> s_;
  int32_t at_ = 0;
  int32_t freed_ = 0;
  int32_t freeing_;
  int32_t behind_;
  int32_t node_ = 0;
};

class SumSendRole {
 public:
  using Work = SumSendWork;
  TILEWIRE_HD explicit constexpr SumSendRole(const ReductionSchedule& s) : s_(s), walk_(s) {}

  TILEWIRE_HD constexpr bool next(Work& w) { return walk_.next(w) || end_.next(s_.frame, w); }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const { return walk_.need(w, i); }
  TILEWIRE_HD constexpr Publish publish(const Work&, int32_t) const { return {}; }

 private:
  Kept<ReductionSchedule> s_;
  SumSendWalk walk_;
  RingEnd end_;
};

// An own chunk: all node sums are here.
struct OwnedSumWork : WorkBase {
  OwnedChunk chunk;
};

class OwnedSumRole {
 public:
  using Work = OwnedSumWork;
  TILEWIRE_HD constexpr OwnedSumRole(const ReductionSchedule& s, int32_t worker) : s_(s), at_(worker), first_(worker) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    if (at_ >= s_.map.chunks_of(s_.me())) return false;
    w = Work{};
    w.chunk = {s_.me(), Chunk{at_}};
    w.needs = sum_needs() + (at_ == first_ ? s_.made_needs() : 0);
    if (s_.map.frees_slot(w.chunk)) w.publishes = s_.width() + (s_.other_nodes() > 0 ? 1 : 0);
    at_ += s_.reduce_workers;
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    if (i < 2 * s_.width()) return s_.partial_need(w.chunk, i);
    if (i >= sum_needs()) return s_.made_need(i - sum_needs());
    const Rank sender = s_.sender(i / 2 - s_.width());
    return i % 2 == 0 ? s_.begun(sender) : s_.need(kSumArrived, sender, w.chunk.chunk);
  }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t i) const {
    if (i < s_.width()) return s_.slot_free(w.chunk, i);
    return {s_.me(), s_.buffers.word(kChunkFinished, s_.me(), w.chunk.chunk)};
  }

 private:
  // A record and a sum of each source of the own node, and of each other node.
  TILEWIRE_HD constexpr int32_t sum_needs() const { return 2 * (s_.width() + s_.other_nodes()); }

  Kept<ReductionSchedule> s_;
  int32_t at_;
  int32_t first_;
};

// Each word has a role that waits for it, but for those of a plan that is not fused where a rank adds up nothing.
struct ReductionDrainWork : WorkBase {};

class ReductionDrainRole {
 public:
  using Work = ReductionDrainWork;
  TILEWIRE_HD explicit constexpr ReductionDrainRole(const ReductionSchedule& s) : s_(s) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    w = Work{};
    w.needs = is_over_ ? 0 : s_.made_needs();
    is_over_ = true;
    return w.needs > 0;
  }
  TILEWIRE_HD constexpr Need need(const Work&, int32_t i) const { return s_.made_need(i); }
  TILEWIRE_HD constexpr Publish publish(const Work&, int32_t) const { return {}; }

 private:
  Kept<ReductionSchedule> s_;
  bool is_over_ = false;
};

// How many pieces of work a worker may wait ahead: those of `ahead_rounds`, which it shares with others.
TILEWIRE_HD constexpr int32_t pieces_ahead(const ReductionMap& map, int32_t fewest_in_round, int32_t workers) {
  const int64_t pieces = int64_t{map.ahead_rounds} * fewest_in_round / workers;
  return static_cast<int32_t>(pieces < INT32_MAX ? pieces : INT32_MAX);
}

// The agents of roles that ops of this kind have alike: the workers of compute and of reduce. Roles is the op's list.
template <class Roles, class Visit>
TILEWIRE_HD constexpr void for_each_summing_role(const ReductionSchedule& s, Cursors cursors, Visit&& visit) {
  for (int32_t worker = 0; worker < s.workers; ++worker) {
    visit(Roles::place("compute").at(worker).with(cursors, pieces_ahead(s.map, s.map.fewest_in_round, s.workers)),
          PartialSumRole(s, worker));
  }
  for (int32_t worker = 0; s.frame.has_network() && worker < s.reduce_workers; ++worker) {
    visit(Roles::place("reduce").at(worker).with(cursors, pieces_ahead(s.map, s.map.fewest_on_rail, s.reduce_workers)),
          NodeSumRole(s, worker));
  }
}

}  // namespace tilewire
