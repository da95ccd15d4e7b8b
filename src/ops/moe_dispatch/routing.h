// What a call's routing says: which experts lie where, and the tables that every rank makes of its tokens and of the
// counts of all ranks, by which the roles know what moves, where each row goes, and what has to be there. For the host
// and the GPU alike; routing_tables.h fills them in on a CPU rank.
//
// Experts are numbered by place: those of node 0's first rank first, in the order of their own numbers. So each rank's
// are together, and each node's.
#pragma once

#include <cstdint>
#include <new>

#include "base/bytes.h"
#include "base/ids.h"
#include "schedule/topology.h"

namespace tilewire::moe_dispatch {

struct ExpertMap {
  int32_t experts = 0;
  const int32_t* first = nullptr;     // [ranks + 1] places before those of a rank, ranks in the order of nodes
  const int32_t* place_of = nullptr;  // [experts] by the expert's own number
  const Rank* rank_of = nullptr;      // [experts] by place

  TILEWIRE_HD static constexpr int32_t seat(const Topology& t, Rank r) {
    return t.node_first[t.node(r).value] + t.local(r).value;
  }
  TILEWIRE_HD constexpr int32_t first_of(const Topology& t, Rank r) const { return first[seat(t, r)]; }
  TILEWIRE_HD constexpr int32_t end_of(const Topology& t, Rank r) const { return first[seat(t, r) + 1]; }
  TILEWIRE_HD constexpr int32_t count_of(const Topology& t, Rank r) const { return end_of(t, r) - first_of(t, r); }
  TILEWIRE_HD constexpr int32_t first_on(const Topology& t, Node n) const { return first[t.node_first[n.value]]; }
  TILEWIRE_HD constexpr int32_t end_on(const Topology& t, Node n) const { return first[t.node_first[n.value + 1]]; }
};

// The rows of one source for one expert in one round: how many, and where among all rows of the round at its rank.
struct Cell {
  int32_t rows = 0;
  int32_t begin = 0;
};

// A row of the own tokens, by token and slot: the place of its expert, or -1, and its number among the rows of its source
// and round for that expert.
struct SlotPlace {
  int32_t place = -1;
  int32_t number = 0;
};

// How large the tables of a routing may be, by agreed values alone, so that they have room before anything is counted.
struct RoutingLimits {
  int32_t ranks = 0;
  int32_t nodes = 0;
  int32_t experts = 0;
  int32_t width = 0;   // most ranks of a node
  int32_t places = 0;  // most experts of a node
  int32_t own = 0;     // most experts of a rank
  int32_t pieces = 0;
  int32_t rounds = 0;
  int64_t tokens = 0;  // of a rank
  int32_t top_k = 0;
  int32_t targets = 0;  // other nodes that a token may go to
};

// The tables that a rank makes in a call. They lie in its half (flags.h), this in front of them. A source's position is
// its number in Schedule::source_at. `places` and `locals` are those of the own node.
struct Routing {
  int32_t rounds = 0;      // most of any rank; 0 where nothing moves
  Rank overflow_rank{-1};  // the first rank that gets more rows than a rank may, and then nothing moves
  int64_t overflow_rows = 0;
  int64_t most_rows = 0;
  int32_t places = 0;  // of the own node's experts
  int32_t groups = 0;  // of rows that are multiplied by one weight, in a round: phases times own experts
  // Of the own tokens, before anything is known of other ranks.
  SlotPlace* slots = nullptr;      // [tokens, k]
  int32_t* own_rows = nullptr;     // [rows] token * k + slot, by round and place, then in order
  int32_t* first_row = nullptr;    // [rounds * experts + 1] rows before those of a round and place
  int32_t* own_tokens = nullptr;   // [tokens for other nodes] by round and node, then in order
  int32_t* first_token = nullptr;  // [rounds * nodes + 1]
  int64_t* node_seen = nullptr;    // [nodes] while tokens are counted: the last one that goes there
  // From the counts of all ranks.
  int32_t* rounds_of = nullptr;    // [ranks]
  int64_t* rows_of = nullptr;      // [ranks] that they get
  int64_t* tokens_of = nullptr;    // [ranks] that they bring
  int64_t* place_rows = nullptr;   // [experts] rows for each, by place
  int64_t* offsets = nullptr;      // [own experts + 1] rows before each own expert in the result, and all of them
  Cell* cells = nullptr;           // [rounds][places][ranks by position]
  int32_t* piece_rows = nullptr;   // [rounds][locals][pieces][ranks by position]
  int32_t* staged = nullptr;       // [rounds][ranks] tokens of a rank of another node for this one
  int32_t* node_tokens = nullptr;  // [rounds][nodes] own tokens for another node
  int32_t* node_begin = nullptr;   // [rounds][nodes] tokens in the outbox before them
  int32_t* group_begin = nullptr;  // [rounds][groups + 1] rows of the round before the group
  int64_t* group_tile = nullptr;   // [rounds * groups + 1] tiles of the call before the group
  int64_t* result_row = nullptr;   // [rounds][own experts][ranks by position] where the cell's result goes
};

// THE list of tables: visit(pointer, how many at most).
template <class Visit>
TILEWIRE_HD constexpr void for_each_table(Routing& r, const RoutingLimits& n, Visit&& visit) {
  const int64_t rounds = n.rounds, groups = 2 * int64_t{n.own};
  visit(r.slots, n.tokens * n.top_k);
  visit(r.own_rows, n.tokens * n.top_k);
  visit(r.first_row, rounds * n.experts + 1);
  visit(r.own_tokens, n.tokens * n.targets);
  visit(r.first_token, rounds * n.nodes + 1);
  visit(r.node_seen, int64_t{n.nodes});
  visit(r.rounds_of, int64_t{n.ranks});
  visit(r.rows_of, int64_t{n.ranks});
  visit(r.tokens_of, int64_t{n.ranks});
  visit(r.place_rows, int64_t{n.experts});
  visit(r.offsets, int64_t{n.own} + 1);
  visit(r.cells, rounds * n.places * n.ranks);
  visit(r.piece_rows, rounds * n.width * n.pieces * n.ranks);
  visit(r.staged, rounds * n.ranks);
  visit(r.node_tokens, rounds * n.nodes);
  visit(r.node_begin, rounds * n.nodes);
  visit(r.group_begin, rounds * (groups + 1));
  visit(r.group_tile, rounds * groups + 1);
  visit(r.result_row, rounds * n.own * n.ranks);
}

inline constexpr int64_t kTableAlignment = 16;

// From the begin of the Routing to the end of the last table.
TILEWIRE_HD constexpr int64_t routing_bytes(const RoutingLimits& n) {
  int64_t at = round_up(int64_t{sizeof(Routing)}, kTableAlignment);
  Routing r;
  for_each_table(r, n,
                 [&]<class T>(T*&, int64_t count) { at += round_up(count * int64_t{sizeof(T)}, kTableAlignment); });
  return at;
}

// An empty routing at `memory`, of routing_bytes(), whose tables lie behind it.
TILEWIRE_HD inline Routing* place_routing(void* memory, const RoutingLimits& n) {
  auto* r = new (memory) Routing;
  auto* at = static_cast<char*>(memory) + round_up(int64_t{sizeof(Routing)}, kTableAlignment);
  for_each_table(*r, n, [&]<class T>(T*& table, int64_t count) {
    table = reinterpret_cast<T*>(at);
    at += round_up(count * int64_t{sizeof(T)}, kTableAlignment);
  });
  return r;
}

}  // namespace tilewire::moe_dispatch
