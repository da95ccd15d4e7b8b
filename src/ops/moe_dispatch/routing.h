// What a call's routing says: which experts lie where, and the tables that every rank makes of the counts of all ranks,
// by which the roles know what moves, where each row goes, and what has to be there. Views, for the host and the GPU
// alike; routing_tables.h owns and fills them.
//
// Experts are numbered by place: those of node 0's first rank first, in the order of their own numbers. So each rank's
// are together, and each node's.
#pragma once

#include <cstdint>

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

// A source's position is its number in Schedule::source_at. `places` and `locals` are those of the own node.
struct Routing {
  int32_t rounds = 0;      // most of any rank; 0 where nothing moves
  Rank overflow_rank{-1};  // the first rank that gets more rows than a rank may, and then nothing moves
  int64_t overflow_rows = 0;
  int64_t most_rows = 0;
  int32_t places = 0;  // of the own node's experts
  int32_t groups = 0;  // of rows that are multiplied by one weight, in a round: phases times own experts
  const int32_t* rounds_of = nullptr;    // [ranks]
  const Cell* cells = nullptr;           // [rounds][places][ranks by position]
  const int32_t* piece_rows = nullptr;   // [rounds][locals][pieces][ranks by position]
  const int32_t* staged = nullptr;       // [rounds][ranks] tokens of a rank of another node for this one
  const int32_t* node_tokens = nullptr;  // [rounds][nodes] own tokens for another node
  const int32_t* node_begin = nullptr;   // [rounds][nodes] tokens in the outbox before them
  const int32_t* group_begin = nullptr;  // [rounds][groups + 1] rows of the round before the group
  const int64_t* group_tile = nullptr;   // [rounds * groups + 1] tiles of the call before the group
  const int64_t* result_row = nullptr;   // [rounds][own experts][ranks by position] where the cell's result goes
};

}  // namespace tilewire::moe_dispatch
