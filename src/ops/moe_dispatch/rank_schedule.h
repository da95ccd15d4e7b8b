// All that the roles of one rank look at in a call of MoE dispatch, and the questions that several of them ask.
#pragma once

#include <cstdint>

#include "ops/moe_dispatch/flags.h"
#include "ops/moe_dispatch/routing.h"
#include "schedule/call_roles.h"
#include "schedule/chunk_map.h"
#include "schedule/column_map.h"
#include "schedule/role.h"
#include "schedule/topology.h"

namespace tilewire::moe_dispatch {

// The tables behind it belong to the plan; `routing` is filled in during the call, what is of the own tokens by the count
// role, the rest by the route role, and read behind the word `routed` alone.
struct Schedule {
  CallFrame frame;
  ExpertMap experts;
  Buffers buffers;
  ColumnMap columns;  // of a weight, and last a block that stands for the origins of rows
  Routing* routing = nullptr;
  const Rank* source_at = nullptr;       // [ranks] in the order in which a receiver of this node keeps their rows
  const int32_t* position_of = nullptr;  // [ranks] and back
  int32_t phases = 1;                    // 2: rows of the own node are multiplied before those of other nodes
  int32_t top_k = 1;
  int32_t window = 1;        // rounds behind which a slot is used again: as many as there are slots
  int32_t pieces = 1;        // of a rank's experts; each source's rows of a piece have a word
  int32_t chunk_tokens = 1;  // tokens of a command
  bool counts_only = false;
  // This rank's own:
  int64_t tokens = 0;
  int32_t tile_rows = 1;
  int32_t raster_rows = 1;
  int32_t workers = 1;
  bool is_fused = true;  // false: the first tile of a round waits for all of the round

  TILEWIRE_HD constexpr const Topology& topology() const { return frame.topology; }
  TILEWIRE_HD constexpr Rank me() const { return frame.me; }
  TILEWIRE_HD constexpr Node node() const { return frame.topology.node(frame.me); }
  TILEWIRE_HD constexpr int32_t width() const { return frame.topology.ranks_on(node()); }
  TILEWIRE_HD constexpr int32_t ranks() const { return frame.topology.ranks; }
  TILEWIRE_HD constexpr Rank local(int32_t i) const { return frame.topology.rank_at(node(), LocalRank{i}); }

  // ---- records
  TILEWIRE_HD constexpr int32_t rounds_of_tokens(int64_t count) const {
    return counts_only ? (count > 0 ? 1 : 0) : static_cast<int32_t>(div_up(count, buffers.block_tokens));
  }
  TILEWIRE_HD constexpr int64_t record_words(int32_t rounds) const {
    return kRecordHead + int64_t{rounds} * (experts.experts + topology().nodes);
  }
  TILEWIRE_HD constexpr int64_t record_bytes(int32_t rounds) const {
    return round_up(record_words(rounds) * int64_t{sizeof(int32_t)}, kWireUnitBytes);
  }

  // ---- rounds. Behind `routed` only.
  TILEWIRE_HD constexpr int32_t rounds() const { return counts_only ? 0 : routing->rounds; }
  TILEWIRE_HD constexpr int32_t rounds_of(Rank s) const { return counts_only ? 0 : routing->rounds_of[s.value]; }
  // Whether what has a slot in this round has to be free for another one, of all ranks or of a source's.
  TILEWIRE_HD constexpr bool frees(int32_t round) const { return round + window < rounds(); }
  TILEWIRE_HD constexpr bool frees(Rank s, int32_t round) const { return round + window < rounds_of(s); }

  // ---- places and pieces
  // Experts of a local rank in a piece, as numbers among those of the node.
  TILEWIRE_HD constexpr RowRange piece_places(Rank d, int32_t piece) const {
    const int32_t count = experts.count_of(topology(), d);
    const int32_t first = experts.first_of(topology(), d) - experts.first_on(topology(), node());
    const auto cut = [&](int32_t p) { return first + div_up(int64_t{p} * count, pieces); };
    return {cut(piece), cut(piece + 1)};
  }
  // The positions that have rows in a phase.
  TILEWIRE_HD constexpr RowRange positions_of(int32_t phase) const {
    return {phase == 0 ? 0 : width(), phase + 1 == phases ? ranks() : width()};
  }
  // The piece of an own expert.
  TILEWIRE_HD constexpr int32_t piece_of(int32_t own_expert) const {
    return static_cast<int32_t>(int64_t{own_expert} * pieces / experts.count_of(topology(), me()));
  }
  TILEWIRE_HD constexpr const Cell& cell(int32_t round, int32_t place, int32_t position) const {
    return routing->cells[(int64_t{round} * routing->places + place) * ranks() + position];
  }
  TILEWIRE_HD constexpr bool has_rows(int32_t round, int32_t local, int32_t piece, int32_t position) const {
    return routing->piece_rows[((int64_t{round} * width() + local) * pieces + piece) * ranks() + position] > 0;
  }
  TILEWIRE_HD constexpr int32_t own_experts() const { return experts.count_of(topology(), me()); }
  TILEWIRE_HD constexpr int32_t first_own_place() const {
    return experts.first_of(topology(), me()) - experts.first_on(topology(), node());
  }

  // ---- tokens for other nodes
  TILEWIRE_HD constexpr int32_t chunks(int32_t count) const { return (count + chunk_tokens - 1) / chunk_tokens; }
  TILEWIRE_HD constexpr RowRange chunk(int32_t count, int32_t number) const {
    const int32_t begin = number * chunk_tokens, end = begin + chunk_tokens;
    return {begin, end < count ? end : count};
  }
  TILEWIRE_HD constexpr int32_t most_chunks() const {
    return static_cast<int32_t>(div_up(buffers.block_tokens, chunk_tokens));
  }
  TILEWIRE_HD constexpr int32_t tokens_to(Node n, int32_t round) const {
    return routing->node_tokens[round * topology().nodes + n.value];
  }
  TILEWIRE_HD constexpr int32_t tokens_from(Rank s, int32_t round) const {
    return routing->staged[int64_t{round} * ranks() + s.value];
  }
  // Where the outbox has the first token of the round for node `n`, from the start of the half.
  TILEWIRE_HD constexpr int64_t outbox_offset(Node n, int32_t round, int64_t token) const {
    return buffers.outbox_offset(routing->node_begin[round * topology().nodes + n.value] + token);
  }
  // Whether tokens of `s` come in at `p` of another node.
  TILEWIRE_HD constexpr bool enters_at(Rank s, Rank p) const {
    return !topology().same_node(s, p) && topology().rail_partner(s, topology().node(p)) == p;
  }
  // Which of the sources that enter at `p` is `s`.
  TILEWIRE_HD constexpr int32_t entry(Rank s, Rank p) const {
    int32_t number = 0;
    for (int32_t r = 0; r < s.value; ++r) number += enters_at(Rank{r}, p) ? 1 : 0;
    return number;
  }
  // The last round before this one in which the slot for own tokens at node `n` was used, or -1.
  TILEWIRE_HD constexpr int32_t used_before(Node n, int32_t round) const {
    for (round -= window; round >= 0; round -= window) {
      if (tokens_to(n, round) > 0) return round;
    }
    return -1;
  }

  // ---- words
  TILEWIRE_HD constexpr uint32_t word(int32_t family, Rank source, int32_t chunk) const {
    return frame.arena.flags.chunk(family, source, Chunk{chunk});
  }
  TILEWIRE_HD constexpr Need begun(Rank source) const {
    return {frame.arena.flags.begun(source == me() ? me() : topology().deliverer(source, me())), 0};
  }
  TILEWIRE_HD constexpr uint32_t counted(Rank s) const { return word(kCounted, s, 0); }
  TILEWIRE_HD constexpr uint32_t routed() const { return word(kRouted, me(), 0); }
  TILEWIRE_HD constexpr uint32_t arrived(Rank s, int32_t round, int32_t piece) const {
    return word(kArrived, s, round * pieces + piece);
  }
  TILEWIRE_HD constexpr uint32_t packed(Node n, int32_t round, int32_t number) const {
    return word(kPacked, Rank{n.value}, round * most_chunks() + number);
  }
  TILEWIRE_HD constexpr uint32_t staged(Rank s, int32_t round, int32_t number) const {
    return word(kStaged, s, round * most_chunks() + number);
  }
  TILEWIRE_HD constexpr uint32_t forwarded(Rank s, int32_t round) const { return word(kForwarded, s, round); }
  TILEWIRE_HD constexpr uint32_t unstaged(Rank p, int32_t round) const { return word(kUnstaged, p, round); }
  TILEWIRE_HD constexpr uint32_t computed(int32_t worker, int32_t round) const {
    const int32_t number = round * workers + worker, most = frame.arena.flags.max_chunks;
    return word(kComputed, Rank{number / most}, number % most);
  }
  TILEWIRE_HD constexpr uint32_t taken(Rank d, int32_t round) const { return word(kTaken, d, round); }
};

// A role that moves rows begins with a piece of work that only waits until the rank's tables are made.
class Gate {
 public:
  // Makes `w` that piece of work, once.
  template <class Work>
  TILEWIRE_HD constexpr bool next(Work& w) {
    if (is_passed_) return false;
    is_passed_ = true;
    w = Work{};
    w.is_gate = true;
    w.needs = 1;
    return true;
  }

 private:
  bool is_passed_ = false;
};

}  // namespace tilewire::moe_dispatch
