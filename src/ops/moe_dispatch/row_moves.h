// Where each single row goes: the index math behind the work that push, pack, forward and compute do. Whoever moves a row
// finds its place by itself, in any order, from the tables and from what lies in front of a staged token; for the host
// and the GPU alike. Behind `routed` only.
#pragma once

#include <cstdint>

#include "ops/moe_dispatch/compute_roles.h"
#include "ops/moe_dispatch/dispatch_roles.h"

namespace tilewire::moe_dispatch {

// A row of the own tokens to the rows of a round at a rank of the own node.
struct RowMove {
  RowOrigin origin;
  Rank to;
  int64_t row = 0;
};

// Where the row of a source with that number for an expert lies, by the expert's place on the own node.
TILEWIRE_HD constexpr int64_t row_at(const Schedule& s, int32_t round, Rank source, const HeaderSlot& h) {
  return s.cell(round, h.place, s.position_of[source.value]).begin + int64_t{h.number};
}

// ---- push
TILEWIRE_HD constexpr int32_t first_of(const Schedule& s, const PushWork& w) {
  const int64_t first = s.experts.first_on(s.topology(), s.node()) + s.piece_places(w.to, w.piece).begin;
  return s.routing->first_row[int64_t{w.round} * s.experts.experts + first];
}
TILEWIRE_HD constexpr int32_t rows_of(const Schedule& s, const PushWork& w) {
  if (w.is_gate) return 0;
  const int64_t end = s.experts.first_on(s.topology(), s.node()) + s.piece_places(w.to, w.piece).end;
  return s.routing->first_row[int64_t{w.round} * s.experts.experts + end] - first_of(s, w);
}
TILEWIRE_HD constexpr RowMove row_of(const Schedule& s, const PushWork& w, int32_t i) {
  const int32_t entry = s.routing->own_rows[first_of(s, w) + i];
  const SlotPlace& slot = s.routing->slots[entry];
  const int32_t place = slot.place - s.experts.first_on(s.topology(), s.node());
  return {{entry / s.top_k, entry % s.top_k}, w.to, row_at(s, w.round, s.me(), {place, slot.number})};
}

// Those of the first rounds together.
TILEWIRE_HD constexpr int32_t rows_to_push(const Schedule& s, int32_t rounds) {
  const int32_t first = s.experts.first_on(s.topology(), s.node()), end = s.experts.end_on(s.topology(), s.node());
  int32_t rows = 0;
  for (int32_t round = 0; round < rounds; ++round) {
    const int32_t* begins = s.routing->first_row + int64_t{round} * s.experts.experts;
    rows += begins[end] - begins[first];
  }
  return rows;
}

// ---- pack
TILEWIRE_HD constexpr int32_t tokens_to_pack(const Schedule& s, int32_t rounds) {
  const int64_t buckets = int64_t{rounds} * s.topology().nodes;
  return s.routing->first_token[buckets] - s.routing->first_token[0];
}
TILEWIRE_HD constexpr int32_t rows_of(const Schedule&, const PackWork& w) {
  return static_cast<int32_t>(w.tokens.rows());
}
// Which token, and what stands in front of it.
TILEWIRE_HD constexpr int32_t token_of(const Schedule& s, const PackWork& w, int32_t i) {
  const int64_t bucket = int64_t{w.chunk.round} * s.topology().nodes + w.chunk.to.value;
  return s.routing->own_tokens[s.routing->first_token[bucket] + w.tokens.begin + i];
}
TILEWIRE_HD constexpr HeaderSlot header_of(const Schedule& s, Node to, int32_t token, int32_t slot) {
  const SlotPlace& at = s.routing->slots[int64_t{token} * s.top_k + slot];
  const int32_t first = s.experts.first_on(s.topology(), to), end = s.experts.end_on(s.topology(), to);
  if (at.place < first || at.place >= end) return {};
  return {at.place - first, at.number};
}

// ---- forward: the row of a staged token's slot that has a place here
TILEWIRE_HD constexpr RowMove row_of(const Schedule& s, const ForwardWork& w, RowOrigin origin, const HeaderSlot& h) {
  const Rank to = s.experts.rank_of[s.experts.first_on(s.topology(), s.node()) + h.place];
  return {origin, to, row_at(s, w.round, w.source, h)};
}

// ---- compute: the rows of a tile that came from the source at a position
struct ResultRows {
  RowRange rows;       // among those of the round
  int64_t result = 0;  // where the first one goes
};
TILEWIRE_HD constexpr ResultRows results_of(const Schedule& s, const TileWork& w, int32_t position) {
  const Cell& cell = s.cell(w.round, s.first_own_place() + w.expert, position);
  const int64_t cell_end = int64_t{cell.begin} + cell.rows;
  const int64_t begin = w.rows.begin > cell.begin ? w.rows.begin : cell.begin;
  const int64_t end = w.rows.end < cell_end ? w.rows.end : cell_end;
  const int64_t at = (int64_t{w.round} * s.own_experts() + w.expert) * s.ranks() + position;
  return {{begin, end}, s.routing->result_row[at] + begin - cell.begin};
}

// The same of a single row of the tile, among those of the round: its source by position, and where its result goes.
struct ResultRow {
  int32_t position = 0;
  int64_t result = 0;
};
TILEWIRE_HD constexpr ResultRow result_of(const Schedule& s, const TileWork& w, int64_t row) {
  int32_t position = w.first;
  while (position < w.last) {
    const Cell& cell = s.cell(w.round, s.first_own_place() + w.expert, position);
    if (row < int64_t{cell.begin} + cell.rows) break;
    ++position;
  }
  const int64_t at = (int64_t{w.round} * s.own_experts() + w.expert) * s.ranks() + position;
  return {position, s.routing->result_row[at] + row - s.cell(w.round, s.first_own_place() + w.expert, position).begin};
}

}  // namespace tilewire::moe_dispatch
