// The roles of ring attention that move keys and values, and that say which slots are free.
#pragma once

#include <cstdint>

#include "ops/attention/rank_schedule.h"
#include "schedule/role.h"
#include "schedule/wire.h"

namespace tilewire::attention {

// Own chunks, from the caller's memory into the own buffer, in their order: those that anybody wants.
struct LoadWork : WorkBase {
  ChunkRef chunk;
};

class LoadRole {
 public:
  using Work = LoadWork;
  TILEWIRE_HD explicit constexpr LoadRole(const Schedule& s) : s_(s) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    for (; chunk_ < s_.chunks_of(s_.me()); ++chunk_) {
      w = Work{};
      w.chunk = {s_.me(), Chunk{chunk_}};
      if (!s_.comes(w.chunk)) continue;
      w.publishes = 1;
      ++chunk_;
      return true;
    }
    return false;
  }
  TILEWIRE_HD constexpr Need need(const Work&, int32_t) const { return {}; }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t) const { return {s_.me(), s_.arrived(w.chunk).word}; }

 private:
  Kept<Schedule> s_;
  int32_t chunk_ = 0;
};

// A chunk on its way to a rank of the own node, or (`is_end`) the word that all of a unit has been forwarded.
struct CopyWork : WorkBase {
  ChunkRef chunk;
  Rank to;
  int32_t unit = 0;
  bool is_end = false;
};

// Own chunks to the local peers that want them. Head-major: of each chunk to the next neighbour first. Step-major: all of
// them to the peer that comes to this rank first, which is the one before it.
class PushRole {
 public:
  using Work = CopyWork;
  TILEWIRE_HD explicit constexpr PushRole(const Schedule& s) : s_(s) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    const int32_t peers = s_.local_peers(), chunks = s_.chunks_of(s_.me());
    for (; at_ < int64_t{peers} * chunks; ++at_) {
      w = Work{};
      w.chunk = {s_.me(), Chunk{static_cast<int32_t>(s_.is_step_major ? at_ % chunks : at_ / peers)}};
      const auto peer = static_cast<int32_t>(s_.is_step_major ? peers - 1 - at_ / chunks : at_ % peers);
      w.to = s_.topology().local_peer(s_.me(), peer);
      if (!s_.wants(w.to, w.chunk)) continue;
      w.unit = s_.unit_of(w.to, w.chunk);
      w.needs = s_.follows(w.unit) ? 2 : 1;
      w.publishes = 1;
      ++at_;
      return true;
    }
    return false;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    return i == 0 ? s_.arrived(w.chunk) : s_.slot_free(w.to, w.chunk);
  }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t) const { return {w.to, s_.arrived(w.chunk).word}; }

 private:
  Kept<Schedule> s_;
  int64_t at_ = 0;
};

// What comes in here from other nodes, to the local peers that want it: unit by unit. In a unit rounds over the number
// of the chunk; in a round every source that enters here, nearest node first; for each the peers.
class ForwardRole {
 public:
  using Work = CopyWork;
  TILEWIRE_HD explicit constexpr ForwardRole(const Schedule& s) : s_(s) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    for (; unit_ < s_.units(); ++unit_, at_ = 0) {
      if (!s_.forwards(unit_)) continue;
      if (next_copy(w)) return true;
      if (!s_.frees(unit_)) continue;
      w = Work{};
      w.unit = unit_++;
      w.is_end = true;
      w.publishes = 1;
      at_ = 0;
      return true;
    }
    return false;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    if (i == 0) return s_.begun(w.chunk.source);
    return i == 1 ? s_.arrived(w.chunk) : s_.slot_free(w.to, w.chunk);
  }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t) const {
    if (w.is_end) return {s_.me(), s_.own_word(kUnitForwarded, w.unit).word};
    return {w.to, s_.arrived(w.chunk).word};
  }

 private:
  TILEWIRE_HD constexpr bool next_copy(Work& w) {
    const int32_t peers = s_.local_peers(), sources = s_.is_step_major ? 1 : s_.entering();
    for (; at_ < int64_t{rounds()} * sources * peers; ++at_) {
      const auto round = static_cast<int32_t>(at_ / peers / sources);
      const Rank source = s_.is_step_major ? s_.source_at(s_.me(), unit_ + 1)
                                           : s_.entering_source(static_cast<int32_t>(at_ / peers % sources));
      const int32_t blocks = s_.blocks_of(source);
      if (!s_.is_step_major && round >= blocks) continue;
      w = Work{};
      w.chunk = {source, Chunk{s_.is_step_major ? round : unit_ * blocks + round}};
      w.to = s_.topology().local_peer(s_.me(), static_cast<int32_t>(at_ % peers));
      if (!s_.wants(w.to, w.chunk)) continue;
      w.unit = s_.unit_of(w.to, w.chunk);
      w.needs = s_.follows(w.unit) ? 3 : 2;
      w.publishes = 1;
      ++at_;
      return true;
    }
    return false;
  }
  TILEWIRE_HD constexpr int32_t rounds() const {
    if (s_.is_step_major) return s_.chunks_of(s_.source_at(s_.me(), unit_ + 1));
    int32_t most = 0;
    for (int32_t i = 0; i < s_.entering(); ++i) {
      const int32_t blocks = s_.blocks_of(s_.entering_source(i));
      if (blocks > most) most = blocks;
    }
    return most;
  }

  Kept<Schedule> s_;
  int32_t unit_ = 0;
  int64_t at_ = 0;
};

// A command for the proxy: an own chunk for another node, the word that a slot is free for a sender, or the end of the
// ring for this call.
struct SendWork : WorkBase {
  ChunkRef chunk;
  int32_t unit = 0;
  bool is_word = false;
  Command command;
};

// By unit at the receiver: its chunks, and behind those of unit u the words that the own slot of unit u - window + 1 is
// free. So a chunk waits only for words that are due before it on whatever rank, and a word for data that is; there is no
// cycle.
class SendRole {
 public:
  using Work = SendWork;
  TILEWIRE_HD explicit constexpr SendRole(const Schedule& s) : s_(s) {
    find_chunk();
    find_word();
  }

  TILEWIRE_HD constexpr bool next(Work& w) {
    w = Work{};
    const int64_t chunk_due = has_chunk_ ? 2 * int64_t{unit_at(receiver())} : INT64_MAX;
    const int64_t word_due = has_word_ ? 2 * (int64_t{freed_} + s_.window - 1) + 1 : INT64_MAX;
    if (chunk_due < word_due) return give_chunk(w);
    if (has_word_) return give_word(w);
    return end_.next(s_.frame, w);
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    if (w.is_word) return s_.own_word(kUnitReleased, w.unit);
    return i == 0 ? s_.arrived(w.chunk) : s_.slot_free(w.command.peer, w.chunk);
  }
  TILEWIRE_HD constexpr Publish publish(const Work&, int32_t) const { return {}; }

 private:
  // Head-major: each chunk to every other node, the next one first. Step-major: all chunks to the node before this one,
  // which comes to it first, then to the one before that.
  TILEWIRE_HD constexpr ChunkRef chunk() const {
    const int32_t chunks = s_.chunks_of(s_.me()), nodes = s_.other_nodes();
    return {s_.me(), Chunk{static_cast<int32_t>(s_.is_step_major ? at_ % chunks : at_ / nodes)}};
  }
  TILEWIRE_HD constexpr Node node() const {
    const int32_t chunks = s_.chunks_of(s_.me()), nodes = s_.other_nodes();
    const int64_t number = s_.is_step_major ? nodes - 1 - at_ / chunks : at_ % nodes;
    return s_.topology().other_node(s_.here(), static_cast<int32_t>(number));
  }
  TILEWIRE_HD constexpr Rank receiver() const { return s_.topology().rail_partner(s_.me(), node()); }
  TILEWIRE_HD constexpr int32_t unit_at(Rank to) const { return s_.unit_of(to, chunk()); }
  TILEWIRE_HD constexpr void find_chunk() {
    const int64_t all = int64_t{s_.chunks_of(s_.me())} * s_.other_nodes();
    while (at_ < all && !s_.node_wants(node(), chunk())) ++at_;
    has_chunk_ = at_ < all;
  }
  TILEWIRE_HD constexpr bool give_chunk(Work& w) {
    w.chunk = chunk();
    const Rank to = receiver();
    w.unit = unit_at(to);
    w.needs = s_.follows(w.unit) ? 2 : 1;
    w.command = {.kind = CommandKind::write,
                 .peer = to,
                 .word = s_.arrived(w.chunk).word,
                 .units = static_cast<uint32_t>(s_.bytes(w.chunk) / kWireUnitBytes),
                 .src_unit = static_cast<uint64_t>(s_.offset(s_.me(), w.chunk)) / kWireUnitBytes,
                 .dst_unit = static_cast<uint64_t>(s_.offset(to, w.chunk)) / kWireUnitBytes};
    ++at_;
    find_chunk();
    return true;
  }

  TILEWIRE_HD constexpr int32_t senders() const { return s_.is_step_major ? 1 : s_.entering(); }
  TILEWIRE_HD constexpr void find_word() {
    while (s_.frees(freed_) && !s_.has_remote_writer(freed_)) ++freed_;
    has_word_ = s_.frees(freed_);
  }
  TILEWIRE_HD constexpr bool give_word(Work& w) {
    w.is_word = true;
    w.unit = freed_;
    w.needs = 1;
    w.command = {.kind = CommandKind::signal,
                 .peer = s_.is_step_major ? s_.next_source(freed_) : s_.entering_source(told_),
                 .word = s_.buffers.word(kSlotFree, s_.me(), Chunk{freed_})};
    if (++told_ < senders()) return true;
    told_ = 0;
    ++freed_;
    find_word();
    return true;
  }

  Kept<Schedule> s_;
  int64_t at_ = 0;
  int32_t freed_ = 0;
  int32_t told_ = 0;
  bool has_chunk_ = false;
  bool has_word_ = false;
  RingEnd end_;
};

// A unit whose slot is used again: nobody here reads it any more.
struct ReleaseWork : WorkBase {
  int32_t unit = 0;
};

class ReleaseRole {
 public:
  using Work = ReleaseWork;
  TILEWIRE_HD explicit constexpr ReleaseRole(const Schedule& s) : s_(s) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    if (!s_.frees(unit_)) return false;
    w = Work{};
    w.unit = unit_++;
    w.needs = s_.workers + (s_.forwards(w.unit) ? 1 : 0);
    w.publishes = s_.local_writers(w.unit) + (s_.has_remote_writer(w.unit) ? 1 : 0);
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    if (i == s_.workers) return s_.own_word(kUnitForwarded, w.unit);
    return {s_.buffers.unit_read(int64_t{w.unit} * s_.workers + i), 0};
  }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t i) const {
    if (i == s_.local_writers(w.unit)) return {s_.me(), s_.own_word(kUnitReleased, w.unit).word};
    return {s_.local_writer(w.unit, i), s_.buffers.word(kSlotFree, s_.me(), Chunk{w.unit})};
  }

 private:
  Kept<Schedule> s_;
  int32_t unit_ = 0;
};

// Of one rank: all its chunks that come here, and all its words that a slot of its is free.
struct DrainWork : WorkBase {
  Rank source;
};

class DrainRole {
 public:
  using Work = DrainWork;
  TILEWIRE_HD explicit constexpr DrainRole(const Schedule& s) : s_(s) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    if (source_ >= s_.ranks()) return false;
    w = Work{};
    w.source = Rank{source_++};
    w.needs = s_.chunks_of(w.source) + freed_units();
    return true;
  }
  // What does not come, the own record stands in for.
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    const int32_t chunks = s_.chunks_of(w.source);
    if (i >= chunks) {
      const int32_t unit = i - chunks;
      return tells_me(w.source, unit) ? Need{s_.buffers.word(kSlotFree, w.source, Chunk{unit}), 0} : s_.begun(s_.me());
    }
    const ChunkRef c{w.source, Chunk{i}};
    return s_.comes(c) ? s_.arrived(c) : s_.begun(s_.me());
  }
  TILEWIRE_HD constexpr Publish publish(const Work&, int32_t) const { return {}; }

 private:
  TILEWIRE_HD constexpr int32_t freed_units() const { return s_.window < s_.units() ? s_.units() - s_.window : 0; }
  // Whether that rank says to this one that its slot of a unit is free.
  TILEWIRE_HD constexpr bool tells_me(Rank r, int32_t unit) const {
    if (r == s_.me()) return false;
    const Topology& t = s_.topology();
    const bool is_remote = s_.frame.is_remote(r), is_entry = t.rail_partner(s_.me(), t.node(r)) == r;
    if (!s_.is_step_major) return !is_remote || is_entry;
    const Rank next = s_.source_at(r, unit + s_.window + 1);
    return is_remote ? is_entry && next == s_.me() : t.entry_rank(next, r) == s_.me();
  }

  Kept<Schedule> s_;
  int32_t source_ = 0;
};

}  // namespace tilewire::attention
