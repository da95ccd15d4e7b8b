// The roles of GEMM+ReduceScatter: one iterator a role, pure integer logic for the host executor, the kernel and the
// simulator.
//
//   compute  multiplies chunks, in rounds, and leaves each in a slot at the rail partner of its owner
//   reduce   on the rail partner: adds the partial sums of the own node, in rank order, for owners on other nodes
//   send     hands node sums to the proxy; under a window also tells other nodes which slots here are free again
//   finish   adds the node sums of own chunks, in node order; bias, residual, rounding
//   drain    acquires what no other role has waited for
//
// The relay role (arrivals that the proxy announces) is the same for all ops: schedule/relay_role.h.
#pragma once

#include <cstdint>

#include "ops/gemm_rs/flags.h"
#include "schedule/call_roles.h"
#include "schedule/reduction_map.h"
#include "schedule/role.h"
#include "schedule/wire.h"

namespace tilewire::gemm_rs {

// All that the roles of one rank look at. The tables behind it belong to the plan.
struct Schedule {
  CallFrame frame;
  ReductionMap map;
  Buffers buffers;
  int32_t workers = 1;         // compute workers of this rank
  int32_t reduce_workers = 1;  // of reduce, and of finish
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
  TILEWIRE_HD constexpr int32_t other_nodes() const { return frame.topology.nodes - 1; }

  TILEWIRE_HD constexpr int64_t partial_bytes(OwnedChunk c) const {
    return map.rows(c).rows() * Buffers::pitch_bytes(map.columns(c), buffers.partial_bytes);
  }
  TILEWIRE_HD constexpr int64_t sum_bytes(OwnedChunk c) const {
    return map.rows(c).rows() * Buffers::pitch_bytes(map.columns(c), buffers.sum_bytes);
  }
  // In the half of taker(c.owner), from its start: the partial sum of a rank of the own node.
  TILEWIRE_HD constexpr int64_t partial_offset(Rank source, OwnedChunk c) const {
    const int64_t slots = map.source_slots[frame.topology.local(taker(c.owner)).value];
    return buffers.partial_offset(frame.topology.local(source).value * slots + map.rail_slot[c.owner.value] +
                                  map.slot(c));
  }
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

// A partial sum of a chunk.
struct ComputeWork : WorkBase {
  OwnedChunk chunk;
  Rank to;
};

class ComputeRole {
 public:
  using Work = ComputeWork;
  TILEWIRE_HD constexpr ComputeRole(const Schedule& s, int32_t worker) : s_(s), at_(worker) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    if (at_ >= s_.map.total_chunks()) return false;
    w = Work{};
    w.chunk = s_.map.at(s_.map.order[at_]);
    w.to = s_.taker(w.chunk.owner);
    w.needs = s_.map.follows_in_slot(w.chunk) ? 1 : 0;
    w.publishes = s_.is_fused ? 1 : 2;
    at_ += s_.workers;
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t) const {
    return s_.need(kSlotFree, w.chunk.owner, s_.map.before_in_slot(w.chunk).chunk);
  }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t i) const {
    if (i == 0) return {w.to, s_.buffers.word(kPartialArrived, s_.me(), s_.map.rail_number(w.chunk))};
    return {s_.me(), s_.buffers.word(kChunkMade, w.chunk.owner, w.chunk.chunk)};
  }

 private:
  Kept<Schedule> s_;
  int32_t at_;
};

// A chunk of which the own node's partial sums are added up.
struct ReduceWork : WorkBase {
  OwnedChunk chunk;
};

class ReduceRole {
 public:
  using Work = ReduceWork;
  TILEWIRE_HD constexpr ReduceRole(const Schedule& s, int32_t worker) : s_(s), at_(worker), first_(worker) {}

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
  Kept<Schedule> s_;
  int32_t at_;
  int32_t first_;
};

// A command for the proxy: a node sum for its owner, or the word that a slot here is free again, or the end of the ring.
struct SendWork : WorkBase {
  OwnedChunk chunk;
  Command command;
};

// Node sums in rounds. The word for own chunk c goes behind those of round c + half a window: early enough for whoever
// waits for it before round c + window, and late enough that the chunk should be finished by then.
class SendRole {
 public:
  using Work = SendWork;
  TILEWIRE_HD explicit constexpr SendRole(const Schedule& s)
      : s_(s), freeing_(freeing_of(s)), behind_((s.map.window - 1) / 2) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    w = Work{};
    const bool has_sum = at_ < s_.map.rail_chunks;
    const OwnedChunk sum = has_sum ? s_.map.at(s_.map.rail_order[at_]) : OwnedChunk{};
    if (freed_ < freeing_ && (!has_sum || int64_t{freed_} + behind_ < sum.chunk.value)) return free_slot(w);
    if (!has_sum) return end_.next(s_.frame, w);
    ++at_;
    w.needs = 1 + (s_.map.follows_in_slot(sum) ? 1 : 0);
    w.chunk = sum;
    w.command = write(sum);
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    if (w.command.kind == CommandKind::signal) return s_.need(kChunkFinished, s_.me(), w.chunk.chunk);
    if (i == 0) return s_.need(kNodeSummed, s_.me(), s_.map.rail_number(w.chunk));
    return s_.need(kSumSlotFree, w.chunk.owner, s_.map.before_in_slot(w.chunk).chunk);
  }
  TILEWIRE_HD constexpr Publish publish(const Work&, int32_t) const { return {}; }

 private:
  // How many own chunks' slots are used again.
  TILEWIRE_HD static constexpr int32_t freeing_of(const Schedule& s) {
    const int32_t own = s.map.chunks_of(s.me());
    return own > s.map.window ? own - s.map.window : 0;
  }
  TILEWIRE_HD constexpr bool free_slot(Work& w) {
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

  Kept<Schedule> s_;
  int32_t at_ = 0;
  int32_t freed_ = 0;
  int32_t freeing_;
  int32_t behind_;
  int32_t node_ = 0;
  RingEnd end_;
};

// An own chunk: all node sums are here.
struct FinishWork : WorkBase {
  OwnedChunk chunk;
};

class FinishRole {
 public:
  using Work = FinishWork;
  TILEWIRE_HD constexpr FinishRole(const Schedule& s, int32_t worker) : s_(s), at_(worker), first_(worker) {}

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

  Kept<Schedule> s_;
  int32_t at_;
  int32_t first_;
};

// Each word has a role that waits for it, but for those of a plan that is not fused where a rank adds up nothing.
struct DrainWork : WorkBase {};

class DrainRole {
 public:
  using Work = DrainWork;
  TILEWIRE_HD explicit constexpr DrainRole(const Schedule& s) : s_(s) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    w = Work{};
    w.needs = is_over_ ? 0 : s_.made_needs();
    is_over_ = true;
    return w.needs > 0;
  }
  TILEWIRE_HD constexpr Need need(const Work&, int32_t i) const { return s_.made_need(i); }
  TILEWIRE_HD constexpr Publish publish(const Work&, int32_t) const { return {}; }

 private:
  Kept<Schedule> s_;
  bool is_over_ = false;
};

// How many pieces of work a worker may wait ahead: those of `ahead_rounds`, which it shares with others.
TILEWIRE_HD constexpr int32_t pieces_ahead(const ReductionMap& map, int32_t fewest_in_round, int32_t workers) {
  const int64_t pieces = int64_t{map.ahead_rounds} * fewest_in_round / workers;
  return static_cast<int32_t>(pieces < INT32_MAX ? pieces : INT32_MAX);
}

// THE list of the roles of a rank beside those of every call: visit(place, iterator) for each. The host executor, the
// kernel and the simulator take names, rings, stages and cursors from here.
template <class Visit>
TILEWIRE_HD constexpr void for_each_role(const Schedule& s, Cursors cursors, Visit&& visit) {
  const ReductionMap& map = s.map;
  for (int32_t worker = 0; worker < s.workers; ++worker) {
    visit(AgentPlace{.role = "compute",
                     .worker = worker,
                     .has_cursors = true,
                     .cursors = cursors,
                     .most_load_ahead = pieces_ahead(map, map.fewest_in_round, s.workers)},
          ComputeRole(s, worker));
  }
  if (s.frame.has_network()) {
    for (int32_t worker = 0; worker < s.reduce_workers; ++worker) {
      visit(AgentPlace{.role = "reduce",
                       .worker = worker,
                       .has_cursors = true,
                       .cursors = cursors,
                       .most_load_ahead = pieces_ahead(map, map.fewest_on_rail, s.reduce_workers)},
            ReduceRole(s, worker));
    }
    visit(AgentPlace{.role = "send",
                     .ring = static_cast<int32_t>(Ring::send),
                     .has_cursors = true,
                     .cursors = cursors,
                     .most_load_ahead = pieces_ahead(map, 1, 1)},
          SendRole(s));
  }
  for (int32_t worker = 0; worker < s.reduce_workers; ++worker) {
    visit(AgentPlace{.role = "finish",
                     .worker = worker,
                     .has_cursors = true,
                     .cursors = cursors,
                     .most_load_ahead = pieces_ahead(map, 1, s.reduce_workers)},
          FinishRole(s, worker));
  }
  visit(AgentPlace{.role = "drain", .stage = kDrainStage}, DrainRole(s));
}

}  // namespace tilewire::gemm_rs
