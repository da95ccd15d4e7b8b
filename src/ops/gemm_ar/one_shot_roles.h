// The roles of the form in one shot: every rank of a node gets the partial sums of all, adds them up for itself and has
// the whole result. Between nodes each local rank sends its part of the node's sum, along the rail.
//
//   compute  multiplies chunks, and leaves each at every rank of the node
//   reduce   adds the own node's partial sums of the chunks that this rank sends, in rank order
//   send     hands them to the proxy, one for every other node
//   forward  on the rail entry rank: copies sums that came by network to the local peers
//   finish   adds the node sums of every chunk, in node order; bias, residual, rounding
//
// Chunks go in the order of their global numbers. There is no window: it is for small matrices.
#pragma once

#include <cstdint>

#include "ops/gemm_ar/rank_schedule.h"
#include "ops/gemm_ar/roles.h"
#include "schedule/call_roles.h"
#include "schedule/gather_walk.h"
#include "schedule/reduction_roles.h"
#include "schedule/role.h"
#include "schedule/wire.h"

namespace tilewire::gemm_ar::one_shot {

struct ComputeWork : WorkBase {
  OwnedChunk chunk;
};

class ComputeRole {
 public:
  using Work = ComputeWork;
  TILEWIRE_HD constexpr ComputeRole(const Schedule& s, int32_t worker) : s_(s), at_(worker) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    if (at_ >= s_.map.total_chunks()) return false;
    w = Work{};
    w.chunk = s_.map.at(at_);
    w.publishes = s_.width() + (s_.is_fused ? 0 : 1);
    at_ += s_.workers;
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work&, int32_t) const { return {}; }
  // The own word last: the peers' ways are longer.
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t i) const {
    if (i == s_.width()) return {s_.me(), s_.buffers.word(kChunkMade, w.chunk.owner, w.chunk.chunk)};
    const Rank to = i < s_.width() - 1 ? s_.topology().local_peer(s_.me(), i) : s_.me();
    return {to, s_.buffers.word(kPartialArrived, s_.me(), Chunk{s_.map.global(w.chunk)})};
  }

 private:
  Kept<Schedule> s_;
  int32_t at_;
};

// The i-th need of whoever adds up the own node's partial sums of a chunk; two a source.
TILEWIRE_HD constexpr Need partial_need(const Schedule& s, OwnedChunk c, int32_t i) {
  return i % 2 == 0 ? s.begun(s.source(i / 2)) : s.need(kPartialArrived, s.source(i / 2), Chunk{s.map.global(c)});
}

struct ReduceWork : WorkBase {
  OwnedChunk chunk;
};

class ReduceRole {
 public:
  using Work = ReduceWork;
  TILEWIRE_HD constexpr ReduceRole(const Schedule& s, int32_t worker) : s_(s), at_(worker), first_(worker) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    if (at_ >= s_.added_by(s_.me())) return false;
    w = Work{};
    w.chunk = s_.map.at(s_.added(s_.me(), Chunk{at_}));
    w.needs = 2 * s_.width() + (at_ == first_ ? s_.made_needs() : 0);
    w.publishes = 1;
    at_ += s_.reduce_workers;
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    return i < 2 * s_.width() ? partial_need(s_, w.chunk, i) : s_.made_need(i - 2 * s_.width());
  }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t) const {
    return {s_.me(), s_.buffers.word(kNodeSummed, s_.me(), s_.number(s_.here(), s_.map.global(w.chunk)))};
  }

 private:
  Kept<Schedule> s_;
  int32_t at_;
  int32_t first_;
};

struct SendWork : WorkBase {
  OwnedChunk chunk;
  Command command;
};

class SendRole {
 public:
  using Work = SendWork;
  TILEWIRE_HD explicit constexpr SendRole(const Schedule& s) : s_(s) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    w = Work{};
    Chunk number{};
    Node to;
    if (!walk_.next(s_.topology(), s_.me(), s_.added_by(s_.me()), number, to)) return end_.next(s_.frame, w);
    w.chunk = s_.map.at(s_.added(s_.me(), number));
    w.needs = 1;
    w.command = {.kind = CommandKind::write,
                 .peer = s_.topology().rail_partner(s_.me(), to),
                 .word = s_.buffers.word(kSumArrived, s_.me(), number),
                 .units = static_cast<uint32_t>(s_.sum_bytes(w.chunk) / kWireUnitBytes),
                 .src_unit = static_cast<uint64_t>(s_.sent_offset(w.chunk)) / kWireUnitBytes,
                 .dst_unit = static_cast<uint64_t>(s_.received_at(to, s_.here(), w.chunk)) / kWireUnitBytes};
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t) const {
    return s_.need(kNodeSummed, s_.me(), s_.number(s_.here(), s_.map.global(w.chunk)));
  }
  TILEWIRE_HD constexpr Publish publish(const Work&, int32_t) const { return {}; }

 private:
  Kept<Schedule> s_;
  RailWalk walk_;
  RingEnd end_;
};

// Another node's sum on its way to a rank of the own node.
struct ForwardWork : WorkBase {
  OwnedChunk chunk;
  Rank adder;
  Rank to;
};

class ForwardRole {
 public:
  using Work = ForwardWork;
  TILEWIRE_HD explicit constexpr ForwardRole(const Schedule& s) : s_(s), walk_(s.topology(), s.me(), 0, 1) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    w = Work{};
    ChunkRef c{};
    const auto chunks_of = [this](Rank adder) { return s_.added_by(adder); };
    if (!walk_.next(s_.topology(), s_.me(), chunks_of, c, w.to)) return false;
    w.adder = c.source;
    w.chunk = s_.map.at(s_.added(c.source, c.chunk));
    w.needs = 2;
    w.publishes = 1;
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    return i == 0 ? s_.begun(w.adder) : Need{word(w), 0};
  }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t) const { return {w.to, word(w)}; }

 private:
  TILEWIRE_HD constexpr uint32_t word(const Work& w) const {
    return s_.buffers.word(kSumArrived, w.adder, s_.number(s_.topology().node(w.adder), s_.map.global(w.chunk)));
  }

  Kept<Schedule> s_;
  ForwardWalk walk_;
};

struct FinishWork : WorkBase {
  OwnedChunk chunk;
};

class FinishRole {
 public:
  using Work = FinishWork;
  TILEWIRE_HD constexpr FinishRole(const Schedule& s, int32_t worker) : s_(s), at_(worker), first_(worker) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    if (at_ >= s_.map.total_chunks()) return false;
    w = Work{};
    w.chunk = s_.map.at(at_);
    w.needs = sum_needs() + (at_ == first_ ? s_.made_needs() : 0);
    at_ += s_.reduce_workers;
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    if (i < 2 * s_.width()) return partial_need(s_, w.chunk, i);
    if (i >= sum_needs()) return s_.made_need(i - sum_needs());
    const int32_t other = i / 2 - s_.width();
    const Rank adder = s_.sum_sender(other, w.chunk);
    if (i % 2 == 0) return s_.begun(s_.topology().deliverer(adder, s_.me()));
    return s_.need(kSumArrived, adder, s_.number(s_.other_node(other), s_.map.global(w.chunk)));
  }
  TILEWIRE_HD constexpr Publish publish(const Work&, int32_t) const { return {}; }

 private:
  TILEWIRE_HD constexpr int32_t sum_needs() const { return 2 * (s_.width() + s_.other_nodes()); }

  Kept<Schedule> s_;
  int32_t at_;
  int32_t first_;
};

// The roles of this form in the list of schedule.h.
template <class Visit>
TILEWIRE_HD constexpr void for_each_role_of(const Schedule& s, Cursors cursors, Visit&& visit) {
  for (int32_t worker = 0; worker < s.workers; ++worker) {
    visit(Roles::place("compute").at(worker).with(cursors), ComputeRole(s, worker));
  }
  if (s.frame.has_network()) {
    for (int32_t worker = 0; worker < s.reduce_workers; ++worker) {
      visit(Roles::place("reduce").at(worker).with(cursors), ReduceRole(s, worker));
    }
    visit(Roles::place("send").with(cursors), SendRole(s));
    visit(Roles::place("forward").with(cursors), ForwardRole(s));
  }
  for (int32_t worker = 0; worker < s.reduce_workers; ++worker) {
    visit(Roles::place("finish").at(worker).with(cursors), FinishRole(s, worker));
  }
}

}  // namespace tilewire::gemm_ar::one_shot
