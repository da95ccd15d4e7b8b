// The roles of MoE dispatch that move rows. All of them go by rounds: nothing of a round is moved before what frees its
// slot, and that waits for earlier rounds only, on whatever rank. So there is no cycle at any window.
//
//   push     copies own tokens to the rows of experts of the own node, own ones too
//   pack     copies own tokens that other nodes need, each once a node, into the outbox behind a header that says for
//            which experts
//   send     hands them to the proxy along the rails; before all else the own record, and with each round the words
//            that staging buffers are free again
//   forward  on the rail entry rank: spreads staged tokens over the experts of the node; before all else the records of
//            the ranks that enter here
#pragma once

#include <cstdint>

#include "ops/moe_dispatch/rank_schedule.h"

namespace tilewire::moe_dispatch {

// Rows for one piece of the experts of a local rank.
struct PushWork : WorkBase {
  bool is_gate = false;
  int32_t round = 0;
  int32_t piece = 0;
  Rank to;
};

// Each piece to every peer before the next piece to any; so a receiver has the rows of its first experts from all
// sources early, and multiplies in that order.
class PushRole {
 public:
  using Work = PushWork;
  TILEWIRE_HD explicit constexpr PushRole(const Schedule& s) : s_(s) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    if (gate_.next(w)) return true;
    const int32_t position = s_.position_of[s_.me().value];
    for (; round_ < s_.rounds_of(s_.me()); ++round_, piece_ = 0) {
      for (; piece_ < s_.pieces; ++piece_, step_ = 0) {
        while (step_ < s_.width()) {
          const Rank to = s_.topology().local_peer(s_.me(), step_++);  // the last one is the rank itself
          if (!s_.has_rows(round_, s_.topology().local(to).value, piece_, position)) continue;
          w = Work{};
          w.round = round_;
          w.piece = piece_;
          w.to = to;
          w.needs = round_ >= s_.window ? 1 : 0;
          w.publishes = 1;
          return true;
        }
      }
    }
    return false;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t) const {
    return {w.is_gate ? s_.routed() : s_.taken(w.to, w.round - s_.window), 0};
  }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t) const {
    return {w.to, s_.arrived(s_.me(), w.round, w.piece)};
  }

 private:
  Kept<Schedule> s_;
  Gate gate_;
  int32_t round_ = 0;
  int32_t piece_ = 0;
  int32_t step_ = 0;
};

// Own tokens for other nodes: rounds, in a round piece after piece, each to the next node first.
struct NodeChunk {
  int32_t round = 0;
  int32_t number = 0;
  Node to;
};

class NodeWalk {
 public:
  // The next one of this round; false where there is none left, and then the walk is in the next round.
  TILEWIRE_HD constexpr bool next_of_round(const Schedule& s, NodeChunk& c) {
    for (; number_ < s.most_chunks(); ++number_, node_ = 0) {
      while (node_ < s.topology().nodes - 1) {
        const Node to = s.topology().other_node(s.node(), node_++);
        if (number_ >= s.chunks(s.tokens_to(to, round_))) continue;
        c = {round_, number_, to};
        return true;
      }
    }
    number_ = node_ = 0;
    ++round_;
    return false;
  }
  TILEWIRE_HD constexpr int32_t round() const { return round_; }

 private:
  int32_t round_ = 0;
  int32_t number_ = 0;
  int32_t node_ = 0;
};

struct PackWork : WorkBase {
  bool is_gate = false;
  NodeChunk chunk;
  RowRange tokens;  // among those of the round for the node
};

class PackRole {
 public:
  using Work = PackWork;
  TILEWIRE_HD explicit constexpr PackRole(const Schedule& s) : s_(s) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    if (gate_.next(w)) return true;
    while (walk_.round() < s_.rounds_of(s_.me())) {
      w = Work{};
      if (!walk_.next_of_round(s_, w.chunk)) continue;
      w.tokens = s_.chunk(s_.tokens_to(w.chunk.to, w.chunk.round), w.chunk.number);
      w.publishes = 1;
      return true;
    }
    return false;
  }
  TILEWIRE_HD constexpr Need need(const Work&, int32_t) const { return {s_.routed(), 0}; }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t) const {
    return {s_.me(), s_.packed(w.chunk.to, w.chunk.round, w.chunk.number)};
  }

 private:
  Kept<Schedule> s_;
  Gate gate_;
  NodeWalk walk_;
};

struct SendWork : WorkBase {
  enum class Kind : int8_t { record, tokens, free_slot, end };
  Kind kind = Kind::record;
  bool is_gate = false;
  bool by_command = true;
  NodeChunk chunk;  // tokens
  RowRange tokens;  // likewise
  Rank source;      // free_slot: whose tokens were staged here
  Command command;
};

class SendRole {
 public:
  using Work = SendWork;
  TILEWIRE_HD explicit constexpr SendRole(const Schedule& s) : s_(s) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    w = Work{};
    if (record_ < s_.topology().nodes - 1) return next_record(w);
    if (gate_.next(w)) {
      w.by_command = false;
      return true;
    }
    // The words for slots of a round leave before the tokens that need them on their way back.
    while (walk_.round() < s_.rounds()) {
      w = Work{};
      if (next_free(w)) return true;
      if (walk_.next_of_round(s_, w.chunk)) {
        set_tokens(w);
        return true;
      }
      source_ = 0;
    }
    w = Work{};
    w.kind = Work::Kind::end;
    return end_.next(s_.frame, w);
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    if (w.is_gate) return {s_.routed(), 0};
    if (w.kind == Work::Kind::record) return {s_.counted(s_.me()), 0};
    if (i == 1) return {s_.unstaged(w.command.peer, s_.used_before(w.chunk.to, w.chunk.round)), 0};
    if (w.kind == Work::Kind::free_slot) return {s_.forwarded(w.source, w.chunk.round), 0};
    return {s_.packed(w.chunk.to, w.chunk.round, w.chunk.number), 0};
  }
  TILEWIRE_HD constexpr Publish publish(const Work&, int32_t) const { return {}; }

 private:
  TILEWIRE_HD constexpr bool next_record(Work& w) {
    const Node to = s_.topology().other_node(s_.node(), record_++);
    const uint64_t unit = static_cast<uint64_t>(s_.buffers.record_offset(s_.me())) / kWireUnitBytes;
    w.needs = 1;
    w.command = {.kind = CommandKind::write,
                 .peer = s_.topology().rail_partner(s_.me(), to),
                 .word = s_.counted(s_.me()),
                 .units = static_cast<uint32_t>(s_.record_bytes(s_.rounds_of_tokens(s_.tokens)) / kWireUnitBytes),
                 .src_unit = unit,
                 .dst_unit = unit};
    return true;
  }
  TILEWIRE_HD constexpr bool next_free(Work& w) {
    const int32_t round = walk_.round() - s_.window;
    while (round >= 0 && source_ < s_.ranks()) {
      const Rank source{source_++};
      if (!s_.enters_at(source, s_.me()) || !s_.frees(source, round) || s_.tokens_from(source, round) == 0) continue;
      w.kind = Work::Kind::free_slot;
      w.chunk.round = round;
      w.source = source;
      w.needs = 1;
      w.command = {.kind = CommandKind::signal, .peer = source, .word = s_.unstaged(s_.me(), round)};
      return true;
    }
    return false;
  }
  TILEWIRE_HD constexpr void set_tokens(Work& w) const {
    w.kind = Work::Kind::tokens;
    w.needs = s_.used_before(w.chunk.to, w.chunk.round) >= 0 ? 2 : 1;
    w.tokens = s_.chunk(s_.tokens_to(w.chunk.to, w.chunk.round), w.chunk.number);
    const Rank peer = s_.topology().rail_partner(s_.me(), w.chunk.to);
    const int64_t src = s_.outbox_offset(w.chunk.to, w.chunk.round, w.tokens.begin);
    const int64_t dst = s_.buffers.staging_offset(s_.entry(s_.me(), peer), w.chunk.round, w.tokens.begin);
    w.command = {.kind = CommandKind::write,
                 .peer = peer,
                 .word = s_.staged(s_.me(), w.chunk.round, w.chunk.number),
                 .units = static_cast<uint32_t>(w.tokens.rows() * s_.buffers.token_pitch / kWireUnitBytes),
                 .src_unit = static_cast<uint64_t>(src) / kWireUnitBytes,
                 .dst_unit = static_cast<uint64_t>(dst) / kWireUnitBytes};
  }

  Kept<Schedule> s_;
  Gate gate_;
  NodeWalk walk_;
  RingEnd end_;
  int32_t record_ = 0;
  int32_t source_ = 0;
};

// What came in from another node, for ranks of this one: the record of its rank for a local peer, or tokens.
struct ForwardWork : WorkBase {
  bool is_gate = false;
  bool is_record = false;
  Rank source;
  Rank to;            // of a record
  int32_t round = 0;  // of tokens
  int32_t number = 0;
  RowRange tokens;       // among those of the source and round
  bool is_last = false;  // of the source and round
};

// Rounds; in a round each source that enters here, nearest node first.
class ForwardRole {
 public:
  using Work = ForwardWork;
  TILEWIRE_HD explicit constexpr ForwardRole(const Schedule& s) : s_(s) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    if (next_record(w)) return true;
    if (gate_.next(w)) return true;
    for (; round_ < s_.rounds(); ++round_, source_ = 0) {
      for (; source_ < s_.ranks(); ++source_, number_ = 0) {
        const Rank source = turned(source_);
        if (!s_.enters_at(source, s_.me())) continue;
        const int32_t count = s_.tokens_from(source, round_), chunks = s_.chunks(count);
        if (number_ >= chunks) continue;
        w = Work{};
        w.source = source;
        w.round = round_;
        w.number = number_++;
        w.tokens = s_.chunk(count, w.number);
        w.is_last = number_ == chunks;
        w.needs = 2 + (round_ >= s_.window ? s_.width() : 0);
        w.publishes = w.is_last ? arrivals(w) + (s_.frees(source, round_) ? 1 : 0) : 0;
        return true;
      }
    }
    return false;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    if (w.is_gate) return {s_.routed(), 0};
    if (i == 0) return s_.begun(w.source);
    if (w.is_record) return {s_.counted(w.source), 0};
    if (i == 1) return {s_.staged(w.source, w.round, w.number), 0};
    return {s_.taken(s_.local(i - 2), w.round - s_.window), 0};
  }
  // The words of each piece that has rows of the source, then that its slot here is free.
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t i) const {
    if (w.is_record) return {w.to, s_.counted(w.source)};
    for (int32_t local = 0; local < s_.width(); ++local) {
      for (int32_t piece = 0; piece < s_.pieces; ++piece) {
        if (!s_.has_rows(w.round, local, piece, s_.position_of[w.source.value])) continue;
        if (i-- == 0) return {s_.local(local), s_.arrived(w.source, w.round, piece)};
      }
    }
    return {s_.me(), s_.forwarded(w.source, w.round)};
  }

 private:
  // Ranks of the next nodes first, as nodes lie in rank order as a rule.
  TILEWIRE_HD constexpr Rank turned(int32_t i) const { return Rank{(s_.me().value + 1 + i) % s_.ranks()}; }
  TILEWIRE_HD constexpr bool next_record(Work& w) {
    for (; record_ < s_.ranks(); ++record_, peer_ = 0) {
      const Rank source = turned(record_);
      if (peer_ >= s_.width() - 1 || !s_.enters_at(source, s_.me())) continue;
      w = Work{};
      w.is_record = true;
      w.source = source;
      w.to = s_.topology().local_peer(s_.me(), peer_++);
      w.needs = 2;
      w.publishes = 1;
      return true;
    }
    return false;
  }
  TILEWIRE_HD constexpr int32_t arrivals(const Work& w) const {
    int32_t count = 0;
    for (int32_t local = 0; local < s_.width(); ++local) {
      for (int32_t piece = 0; piece < s_.pieces; ++piece) {
        count += s_.has_rows(w.round, local, piece, s_.position_of[w.source.value]) ? 1 : 0;
      }
    }
    return count;
  }

  Kept<Schedule> s_;
  Gate gate_;
  int32_t record_ = 0;
  int32_t peer_ = 0;
  int32_t round_ = 0;
  int32_t source_ = 0;
  int32_t number_ = 0;
};

}  // namespace tilewire::moe_dispatch
