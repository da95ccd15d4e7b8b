// The roles of GEMM+AllReduce: one iterator a role, pure integer logic for the host executor, the kernel and the
// simulator. There are two forms.
//
// Two shots: a reduction to owners (schedule/reduction_roles.h), then a gather of what they have finished.
//   compute, reduce, drain   as in a reduction
//   send      node sums, and behind them finished chunks, to the proxy
//   finish    adds the node sums of own chunks; leaves the result at every rank of the node
//   forward   on the rail entry rank: copies finished chunks that came by network to the local peers
//   collect   copies other owners' chunks into the caller's result
// One shot (one_shot_roles.h): every rank of a node takes the partial sums of all, and finishes everything itself.
//
// The relay role (arrivals that the proxy announces) is the same for all ops: schedule/relay_role.h.
#pragma once

#include <cstdint>

#include "ops/gemm_ar/one_shot_roles.h"
#include "ops/gemm_ar/rank_schedule.h"
#include "ops/gemm_ar/roles.h"
#include "schedule/call_roles.h"
#include "schedule/gather_walk.h"
#include "schedule/reduction_roles.h"

namespace tilewire::gemm_ar {

// As SumSendWork, or a finished chunk, or the word that the slots of another owner's chunk are free again on this node.
struct SendWork : SumSendWork {
  enum class Kind : int8_t { sum, result, result_slot };
  Kind kind = Kind::sum;
};

// What there is to give goes by the round in which it is due, and within a round in this order:
//   node sums of the round
//   own chunks of gather_behind rounds before. Then they are finished as a rule: sooner, and sums that are ready would
//   wait behind them; later, and they would be sent when nothing is left to hide it
//   under a window: the words for slots of own chunks' sums (see SumSendWalk), and then those for results of a window
//   less one round before
// Each waits only for what stands in front of it, on whatever rank; so there is no cycle.
class SendRole {
 public:
  using Work = SendWork;
  TILEWIRE_HD explicit constexpr SendRole(const Schedule& s) : s_(s), sums_(s) { find_slot(); }

  TILEWIRE_HD constexpr bool next(Work& w) {
    w = Work{};
    const int64_t sum = 4 * sums_.time() + (sums_.frees() ? 2 : 0);
    const int64_t result = 4 * (int64_t{results_.chunk()} + s_.gather_behind) + 1;
    const int64_t slot =
        slot_ < s_.map.rail_chunks ? 4 * (int64_t{freed().chunk.value} + s_.map.window - 1) + 3 : INT64_MAX;
    if (result < sum && result < slot && next_result(w)) return true;
    if (slot < sum) return next_slot(w);
    return sums_.next(w) || end_.next(s_.frame, w);
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    if (w.kind == SendWork::Kind::sum) return sums_.need(w, i);
    if (w.kind == SendWork::Kind::result_slot) return s_.taken(s_.source(i), w.chunk);
    if (i == 0) return s_.need(kResultArrived, s_.me(), w.chunk.chunk);
    return s_.need(kResultSlotFree, w.command.peer, s_.map.before_in_slot(w.chunk).chunk);
  }
  TILEWIRE_HD constexpr Publish publish(const Work&, int32_t) const { return {}; }

 private:
  // Other owners' chunks whose slots here are used again, in the order of the sums.
  TILEWIRE_HD constexpr OwnedChunk freed() const { return s_.map.at(s_.map.rail_order[slot_]); }
  TILEWIRE_HD constexpr void find_slot() {
    while (slot_ < s_.map.rail_chunks && !s_.map.frees_slot(freed())) ++slot_;
  }
  TILEWIRE_HD constexpr bool next_slot(Work& w) {
    w.kind = SendWork::Kind::result_slot;
    w.chunk = freed();
    w.needs = s_.width();
    w.command = {.kind = CommandKind::signal,
                 .peer = w.chunk.owner,
                 .word = s_.buffers.word(kResultSlotFree, s_.me(), w.chunk.chunk)};
    ++slot_;
    find_slot();
    return true;
  }
  TILEWIRE_HD constexpr bool next_result(Work& w) {
    Node to;
    if (!results_.next(s_.topology(), s_.me(), s_.map.chunks_of(s_.me()), w.chunk.chunk, to)) return false;
    w.kind = SendWork::Kind::result;
    w.chunk.owner = s_.me();
    w.needs = 1 + (s_.map.follows_in_slot(w.chunk) ? 1 : 0);
    w.command = {.kind = CommandKind::write,
                 .peer = s_.topology().rail_partner(s_.me(), to),
                 .word = s_.buffers.word(kResultArrived, s_.me(), w.chunk.chunk),
                 .units = static_cast<uint32_t>(s_.result_chunk_bytes(w.chunk) / kWireUnitBytes),
                 .src_unit = static_cast<uint64_t>(s_.finished_offset(w.chunk)) / kWireUnitBytes,
                 .dst_unit = static_cast<uint64_t>(s_.result_offset(w.chunk)) / kWireUnitBytes};
    return true;
  }

  Kept<Schedule> s_;
  SumSendWalk sums_;
  RailWalk results_;
  int32_t slot_ = 0;
  RingEnd end_;
};

// An own chunk: all node sums are here. Its result goes to every rank of the node.
class FinishRole {
 public:
  using Work = OwnedSumWork;
  TILEWIRE_HD constexpr FinishRole(const Schedule& s, int32_t worker) : s_(s), sums_(s, worker) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    if (!sums_.next(w)) return false;
    w.needs += slots(w);
    w.publishes += results();
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    const int32_t sums = w.needs - slots(w);
    if (i < sums) return sums_.need(w, i);
    return s_.taken(s_.topology().local_peer(s_.me(), i - sums), s_.map.before_in_slot(w.chunk));
  }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t i) const {
    if (i >= results()) return sums_.publish(w, i - results());
    const Rank to = i < s_.width() - 1 ? s_.topology().local_peer(s_.me(), i) : s_.me();
    return {to, s_.buffers.word(kResultArrived, s_.me(), w.chunk.chunk)};
  }

 private:
  // The peers' slots, where they are used again.
  TILEWIRE_HD constexpr int32_t slots(const Work& w) const {
    return s_.map.follows_in_slot(w.chunk) ? s_.width() - 1 : 0;
  }
  // The peers' words, and the own one where somebody sends the chunk.
  TILEWIRE_HD constexpr int32_t results() const { return s_.width() - (s_.frame.has_network() ? 0 : 1); }

  Kept<Schedule> s_;
  OwnedSumRole sums_;
};

// A finished chunk on its way to a rank of the own node.
struct ForwardWork : WorkBase {
  OwnedChunk chunk;
  Rank to;
};

class ForwardRole {
 public:
  using Work = ForwardWork;
  TILEWIRE_HD explicit constexpr ForwardRole(const Schedule& s) : s_(s), walk_(s.topology(), s.me(), 0, 1) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    w = Work{};
    ChunkRef c{};
    const auto chunks_of = [this](Rank owner) { return s_.map.chunks_of(owner); };
    if (!walk_.next(s_.topology(), s_.me(), chunks_of, c, w.to)) return false;
    w.chunk = {c.source, c.chunk};
    w.needs = 2;
    w.publishes = 1;
    return true;
  }
  // The peer's slot is free: the owner has sent the chunk once all ranks of the node had taken the one before.
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    return i == 0 ? s_.begun(w.chunk.owner) : s_.need(kResultArrived, w.chunk.owner, w.chunk.chunk);
  }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t) const {
    return {w.to, s_.buffers.word(kResultArrived, w.chunk.owner, w.chunk.chunk)};
  }

 private:
  Kept<Schedule> s_;
  ForwardWalk walk_;
};

// Another owner's chunk, into the caller's result.
struct CollectWork : WorkBase {
  OwnedChunk chunk;
};

// Rounds over the chunk number; in a round the owners behind this rank first.
class CollectRole {
 public:
  using Work = CollectWork;
  TILEWIRE_HD constexpr CollectRole(const Schedule& s, int32_t worker) : s_(s), at_(worker) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    const int32_t ranks = s_.topology().ranks, others = ranks - 1;
    // Chunks are dealt out evenly, to the first owners first.
    const int64_t places = int64_t{s_.map.chunks_of(Rank{0})} * others;
    for (; at_ < places; at_ += s_.reduce_workers) {
      const auto chunk = static_cast<int32_t>(at_ / others), behind = static_cast<int32_t>(at_ % others);
      const Rank owner{(s_.me().value + 1 + behind) % ranks};
      if (chunk >= s_.map.chunks_of(owner)) continue;
      w = Work{};
      w.chunk = {owner, Chunk{chunk}};
      w.needs = 2;
      w.publishes = s_.map.frees_slot(w.chunk) ? 1 : 0;
      at_ += s_.reduce_workers;
      return true;
    }
    return false;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    return i == 0 ? s_.begun(s_.topology().deliverer(w.chunk.owner, s_.me()))
                  : s_.need(kResultArrived, w.chunk.owner, w.chunk.chunk);
  }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t) const {
    return {s_.taker(w.chunk.owner), s_.buffers.word(kResultTaken, s_.me(), s_.map.rail_number(w.chunk))};
  }

 private:
  Kept<Schedule> s_;
  int64_t at_;
};

// The agents of a rank beside those of every call: visit(place, iterator) for each role of the list in roles.h and each of
// its workers. The host executor, the kernel's tests and the simulator take stages and cursors from here.
template <class Visit>
TILEWIRE_HD constexpr void for_each_role(const Schedule& s, Cursors cursors, Visit&& visit) {
  if (s.is_one_shot) {
    one_shot::for_each_role_of(s, cursors, visit);
  } else {
    for_each_summing_role<Roles>(s, cursors, visit);
    const int32_t gathers_ahead = s.result_slots == 0 ? INT32_MAX : 0;
    if (s.frame.has_network()) {
      // It waits for what its own sums lead to, so it cannot wait ahead.
      visit(Roles::place("send").with(cursors, 0), SendRole(s));
      visit(Roles::place("forward").with(cursors, gathers_ahead), ForwardRole(s));
    }
    const int32_t ahead = pieces_ahead(s.map, 1, s.reduce_workers);
    const int32_t behind = s.frame.has_network() ? s.finishes_ahead / s.reduce_workers : ahead;
    for (int32_t worker = 0; worker < s.reduce_workers; ++worker) {
      visit(Roles::place("finish").at(worker).with(cursors, ahead < behind ? ahead : behind), FinishRole(s, worker));
      visit(Roles::place("collect").at(worker).with(cursors, gathers_ahead), CollectRole(s, worker));
    }
  }
  visit(Roles::place("drain").in_stage(kDrainStage), ReductionDrainRole(s));
}

}  // namespace tilewire::gemm_ar
