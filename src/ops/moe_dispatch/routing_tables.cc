#include "ops/moe_dispatch/routing_tables.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"

namespace tilewire::moe_dispatch {
namespace {

// What each rank has counted.
class Records {
 public:
  Records(const Schedule& s, const std::byte* first) : s_(s), first_(first) {}

  const int32_t* of(Rank r) const {
    return reinterpret_cast<const int32_t*>(first_ + r.value * s_.buffers.record_bytes);
  }
  // A column is a place, or experts + a node.
  int32_t count(Rank source, int32_t round, int32_t column) const {
    if (round >= s_.routing->rounds_of[source.value]) return 0;
    return of(source)[kRecordHead + int64_t{round} * (s_.experts.experts + s_.topology().nodes) + column];
  }

 private:
  const Schedule& s_;
  const std::byte* first_;
};

int64_t block_of(const Schedule& s) { return s.counts_only ? std::max<int64_t>(1, s.tokens) : s.buffers.block_tokens; }

// `row(round, place, token, slot)` for each row, `node(round, node, token)` for each other node that a token goes to: in
// the order of tokens and slots, so that each row has its place by what comes before it.
template <class VisitRow, class VisitNode>
void walk_routes(const Schedule& s, const TokenRoutes& routes, std::span<int64_t> seen, const VisitRow& row,
                 const VisitNode& node) {
  const int64_t block = block_of(s);
  std::fill(seen.begin(), seen.end(), -1);
  for (int64_t token = 0; token < s.tokens; ++token) {
    const auto round = static_cast<int32_t>(token / block);
    for (int32_t slot = 0; slot < s.top_k; ++slot) {
      const int32_t expert = routes.expert(token, slot);
      const int32_t place = expert < 0 ? -1 : s.experts.place_of[expert];
      row(round, place, token, slot);
      if (place < 0) continue;
      const Node to = s.topology().node(s.experts.rank_of[place]);
      int64_t& last = seen[static_cast<size_t>(to.value)];
      if (to == s.node() || last == token) continue;
      last = token;
      node(round, to, token);
    }
  }
}

// Of buckets with so many entries each: how many are before each, and all.
template <class Count>
void sum_up(int64_t buckets, int32_t* first, const Count& count) {
  first[0] = 0;
  for (int64_t b = 0; b < buckets; ++b) first[b + 1] = first[b] + count(b);
}

// What every rank gets in all, the same numbers on all ranks; and where the own experts' results begin.
void add_up(const Schedule& s, const Records& records) {
  Routing& r = *s.routing;
  const int32_t experts = s.experts.experts;
  std::fill_n(r.place_rows, experts, 0);
  std::fill_n(r.rows_of, s.ranks(), 0);
  for (int32_t rank = 0; rank < s.ranks(); ++rank) {
    r.tokens_of[rank] = tokens_in(records.of(Rank{rank}));
    r.rounds_of[rank] = s.rounds_of_tokens(r.tokens_of[rank]);
    for (int32_t round = 0; round < r.rounds_of[rank]; ++round) {
      for (int32_t place = 0; place < experts; ++place) r.place_rows[place] += records.count(Rank{rank}, round, place);
    }
  }
  for (int32_t place = 0; place < experts; ++place) r.rows_of[s.experts.rank_of[place].value] += r.place_rows[place];
  r.offsets[0] = 0;
  const int32_t first = s.experts.first_of(s.topology(), s.me());
  for (int32_t e = 0; e < s.own_experts(); ++e) r.offsets[e + 1] = r.offsets[e] + r.place_rows[first + e];
  for (int32_t rank = 0; rank < s.ranks() && !has_overflow(r) && !s.counts_only; ++rank) {
    if (r.rows_of[rank] <= r.most_rows) continue;
    r.overflow_rank = Rank{rank};
    r.overflow_rows = r.rows_of[rank];
  }
}

void make_nodes(const Schedule& s, const Records& records) {
  Routing& r = *s.routing;
  const Topology& t = s.topology();
  int32_t in_outbox = 0;
  for (int32_t round = 0; round < r.rounds; ++round) {
    for (int32_t rank = 0; rank < s.ranks(); ++rank) {
      r.staged[int64_t{round} * s.ranks() + rank] =
          t.same_node(Rank{rank}, s.me()) ? 0 : records.count(Rank{rank}, round, s.experts.experts + s.node().value);
    }
    for (int32_t n = 0; n < t.nodes; ++n) {
      const int64_t at = int64_t{round} * t.nodes + n;
      r.node_tokens[at] = records.count(s.me(), round, s.experts.experts + n);
      r.node_begin[at] = in_outbox;
      in_outbox += r.node_tokens[at];
    }
  }
}

// For each rank of the node its rows of a round lie by phase, expert and source.
void make_cells(const Schedule& s, const Records& records) {
  Routing& r = *s.routing;
  const int32_t ranks = s.ranks(), first_place = s.experts.first_on(s.topology(), s.node());
  r.places = s.experts.end_on(s.topology(), s.node()) - first_place;
  std::fill_n(r.piece_rows, int64_t{r.rounds} * s.width() * s.pieces * ranks, 0);
  for (int32_t round = 0; round < r.rounds; ++round) {
    for (int32_t local = 0; local < s.width(); ++local) {
      int32_t begin = 0;
      for (int32_t phase = 0; phase < s.phases; ++phase) {
        const RowRange positions = s.positions_of(phase);
        for (int32_t piece = 0; piece < s.pieces; ++piece) {
          const RowRange places = s.piece_places(s.local(local), piece);
          int32_t* of_piece = r.piece_rows + ((int64_t{round} * s.width() + local) * s.pieces + piece) * ranks;
          for (int64_t place = places.begin; place < places.end; ++place) {
            for (int64_t position = positions.begin; position < positions.end; ++position) {
              Cell& cell = r.cells[(int64_t{round} * r.places + place) * ranks + position];
              cell.rows = records.count(s.source_at[position], round, first_place + static_cast<int32_t>(place));
              cell.begin = begin;
              begin += cell.rows;
              of_piece[position] += cell.rows;
            }
          }
        }
      }
    }
  }
}

void make_groups(const Schedule& s) {
  Routing& r = *s.routing;
  const int32_t own = s.own_experts();
  r.groups = s.phases * own;
  r.group_tile[0] = 0;
  for (int32_t round = 0; round < r.rounds; ++round) {
    int32_t* begins = r.group_begin + int64_t{round} * (r.groups + 1);
    begins[0] = 0;
    for (int32_t group = 0; group < r.groups; ++group) {
      const RowRange positions = s.positions_of(group / own);
      int32_t rows = 0;
      for (int64_t p = positions.begin; p < positions.end; ++p) {
        rows += s.cell(round, s.first_own_place() + group % own, static_cast<int32_t>(p)).rows;
      }
      begins[group + 1] = begins[group] + rows;
      int64_t* tiles = r.group_tile + int64_t{round} * r.groups + group;
      tiles[1] = tiles[0] + div_up(rows, s.tile_rows) * s.columns.blocks();
    }
  }
}

// Results lie by expert, source rank, token and slot, whatever the rounds.
void make_results(const Schedule& s) {
  Routing& r = *s.routing;
  const int32_t ranks = s.ranks(), own = s.own_experts();
  for (int32_t e = 0; e < own; ++e) {
    int64_t row = r.offsets[e];
    for (int32_t rank = 0; rank < ranks; ++rank) {
      const int32_t position = s.position_of[rank];
      for (int32_t round = 0; round < r.rounds; ++round) {
        r.result_row[(int64_t{round} * own + e) * ranks + position] = row;
        row += s.cell(round, s.first_own_place() + e, position).rows;
      }
    }
  }
}

}  // namespace

ExpertTables::ExpertTables(const std::vector<int32_t>& rank_of_expert, const Topology& t, Rank me, bool local_first)
    : place_of_(rank_of_expert.size()), phases_(local_first && t.nodes > 1 ? 2 : 1) {
  for (int32_t seat = 0; seat < t.ranks; ++seat) {
    first_.push_back(static_cast<int32_t>(rank_of_.size()));
    const Rank rank{t.rank_in_node[seat]};
    for (size_t e = 0; e < rank_of_expert.size(); ++e) {
      if (rank_of_expert[e] != rank.value) continue;
      place_of_[e] = static_cast<int32_t>(rank_of_.size());
      rank_of_.push_back(rank);
    }
  }
  first_.push_back(static_cast<int32_t>(rank_of_.size()));
  const auto is_first = [&](Rank r) { return phases_ == 2 && t.same_node(r, me); };
  for (const bool first : {true, false}) {
    for (int32_t r = 0; r < t.ranks; ++r) {
      if (is_first(Rank{r}) == first) source_at_.emplace_back(r);
    }
  }
  position_of_.resize(source_at_.size());
  for (size_t p = 0; p < source_at_.size(); ++p) {
    position_of_[static_cast<size_t>(source_at_[p].value)] = static_cast<int32_t>(p);
  }
}

void ExpertTables::fill(Schedule& s) const {
  s.experts = {.experts = static_cast<int32_t>(place_of_.size()),
               .first = first_.data(),
               .place_of = place_of_.data(),
               .rank_of = rank_of_.data()};
  s.source_at = source_at_.data();
  s.position_of = position_of_.data();
  s.phases = phases_;
}

int64_t tokens_in(const int32_t* record) {
  int64_t tokens = 0;
  std::memcpy(&tokens, record, sizeof(tokens));
  return tokens;
}

void count_routes(const Schedule& s, const TokenRoutes& routes, std::span<int64_t> seen, std::span<int32_t> record) {
  const int32_t width = s.experts.experts + s.topology().nodes;
  std::fill(record.begin(), record.end(), 0);
  std::memcpy(record.data(), &s.tokens, sizeof(s.tokens));
  int32_t* counts = record.data() + kRecordHead;
  walk_routes(
      s, routes, seen,
      [&](int32_t round, int32_t place, int64_t, int32_t) {
        if (place >= 0) ++counts[int64_t{round} * width + place];
      },
      [&](int32_t round, Node to, int64_t) { ++counts[int64_t{round} * width + s.experts.experts + to.value]; });
}

// Rounds come one after the other, so that what is counted of a place or node begins anew with each.
void list_routes(const Schedule& s, const TokenRoutes& routes, std::span<const int32_t> record) {
  Routing& r = *s.routing;
  const int32_t experts = s.experts.experts, nodes = s.topology().nodes, rounds = s.rounds_of_tokens(s.tokens);
  const int32_t* counts = record.data() + kRecordHead;
  sum_up(int64_t{rounds} * experts, r.first_row,
         [&](int64_t b) { return counts[b / experts * (experts + nodes) + b % experts]; });
  sum_up(int64_t{rounds} * nodes, r.first_token,
         [&](int64_t b) { return counts[b / nodes * (experts + nodes) + experts + b % nodes]; });
  int64_t *next_row = r.place_rows, *next_token = r.rows_of;  // route() has other use for them
  int32_t at = -1;
  const auto enter = [&](int32_t round) {
    if (round == at) return;
    at = round;
    std::fill_n(next_row, experts, 0);
    std::fill_n(next_token, nodes, 0);
  };
  walk_routes(
      s, routes, {r.node_seen, static_cast<size_t>(nodes)},
      [&](int32_t round, int32_t place, int64_t token, int32_t slot) {
        enter(round);
        const int64_t entry = token * s.top_k + slot;
        r.slots[entry] = {place, 0};
        if (place < 0) return;
        r.slots[entry].number = static_cast<int32_t>(next_row[place]++);
        r.own_rows[r.first_row[int64_t{round} * experts + place] + r.slots[entry].number] = static_cast<int32_t>(entry);
      },
      [&](int32_t round, Node to, int64_t token) {
        const int64_t number = next_token[to.value]++;
        r.own_tokens[r.first_token[int64_t{round} * nodes + to.value] + number] = static_cast<int32_t>(token);
      });
}

void route(const Schedule& s, int64_t most_rows, const std::byte* first_record) {
  Routing& r = *s.routing;
  const Records records(s, first_record);
  r.most_rows = most_rows;
  add_up(s, records);
  if (!s.counts_only && !has_overflow(r)) {
    r.rounds = *std::max_element(r.rounds_of, r.rounds_of + s.ranks());
  } else {
    std::fill_n(r.rounds_of, s.ranks(), 0);
  }
  make_nodes(s, records);
  make_cells(s, records);
  make_groups(s);
  make_results(s);
}

}  // namespace tilewire::moe_dispatch
