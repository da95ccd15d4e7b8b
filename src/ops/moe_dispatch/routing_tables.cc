#include "ops/moe_dispatch/routing_tables.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"

namespace tilewire::moe_dispatch {
namespace {

// The tokens of a rank, as its record's head says.
int64_t tokens_in(const int32_t* record) {
  int64_t tokens = 0;
  std::memcpy(&tokens, record, sizeof(tokens));
  return tokens;
}

// Entries by bucket: counts become where each bucket begins, with the end of the last.
void begins_of(std::vector<int32_t>& counts) {
  int32_t sum = 0;
  for (int32_t& c : counts) {
    const int32_t count = c;
    c = sum;
    sum += count;
  }
  counts.push_back(sum);
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

// Twice over the tokens: how many are in each bucket, then which. In the order of tokens and slots, so that each row has
// its place by what comes before it.
void RoutingTables::count(const Schedule& s, const TokenRoutes& routes, std::span<int32_t> record) {
  const Topology& t = s.topology();
  experts_ = s.experts.experts;
  nodes_ = t.nodes;
  const int32_t rounds = s.rounds_of_tokens(s.tokens), width = experts_ + nodes_;
  const int64_t block = s.counts_only ? std::max<int64_t>(1, s.tokens) : s.buffers.block_tokens;
  std::fill(record.begin(), record.end(), 0);
  std::memcpy(record.data(), &s.tokens, sizeof(s.tokens));
  int32_t* counts = record.data() + kRecordHead;
  // `visit(round, place or experts + node, entry)` for each row and for each node that a token goes to.
  const auto walk = [&](const auto& visit) {
    std::vector<int64_t> seen(static_cast<size_t>(nodes_), -1);  // the last token that went there
    for (int64_t token = 0; token < s.tokens; ++token) {
      const auto round = static_cast<int32_t>(token / block);
      for (int32_t slot = 0; slot < s.top_k; ++slot) {
        const int64_t expert = routes.expert(token, slot);
        if (expert < 0) continue;
        const int32_t place = s.experts.place_of[expert];
        visit(round, place, static_cast<int32_t>(token * s.top_k + slot));
        const Node node = t.node(s.experts.rank_of[place]);
        if (node == s.node() || seen[static_cast<size_t>(node.value)] == token) continue;
        seen[static_cast<size_t>(node.value)] = token;
        visit(round, experts_ + node.value, static_cast<int32_t>(token));
      }
    }
  };
  walk([&](int32_t round, int32_t column, int32_t) { ++counts[int64_t{round} * width + column]; });
  own_first_.clear();
  node_first_.clear();
  for (int32_t round = 0; round < rounds; ++round) {
    const int32_t* of_round = counts + int64_t{round} * width;
    own_first_.insert(own_first_.end(), of_round, of_round + experts_);
    node_first_.insert(node_first_.end(), of_round + experts_, of_round + width);
  }
  begins_of(own_first_);
  begins_of(node_first_);
  own_rows_.resize(static_cast<size_t>(own_first_.back()));
  own_tokens_.resize(static_cast<size_t>(node_first_.back()));
  std::vector<int32_t> next_row = own_first_, next_token = node_first_;
  walk([&](int32_t round, int32_t column, int32_t entry) {
    if (column < experts_) {
      own_rows_[static_cast<size_t>(next_row[static_cast<size_t>(int64_t{round} * experts_ + column)]++)] = entry;
    } else {
      const int64_t bucket = int64_t{round} * nodes_ + column - experts_;
      own_tokens_[static_cast<size_t>(next_token[static_cast<size_t>(bucket)]++)] = entry;
    }
  });
}

std::span<const int32_t> RoutingTables::own_rows(int32_t round, int32_t place) const {
  const auto at = static_cast<size_t>(int64_t{round} * experts_ + place);
  return std::span(own_rows_).subspan(static_cast<size_t>(own_first_[at]),
                                      static_cast<size_t>(own_first_[at + 1] - own_first_[at]));
}

std::span<const int32_t> RoutingTables::own_tokens(int32_t round, Node node) const {
  const auto at = static_cast<size_t>(int64_t{round} * nodes_ + node.value);
  return std::span(own_tokens_)
      .subspan(static_cast<size_t>(node_first_[at]), static_cast<size_t>(node_first_[at + 1] - node_first_[at]));
}

int32_t RoutingTables::rows(const Schedule& s, const std::vector<const int32_t*>& records, Rank source, int32_t round,
                            int32_t column) const {
  const auto r = static_cast<size_t>(source.value);
  if (round >= rounds_of_[r]) return 0;
  return records[r][kRecordHead + int64_t{round} * (s.experts.experts + s.topology().nodes) + column];
}

void RoutingTables::route_all(const Schedule& s, int64_t most_rows, const std::vector<const int32_t*>& records) {
  view_ = Routing{};
  view_.most_rows = most_rows;
  add_up(s, records);
  if (!s.counts_only && !has_overflow()) {
    view_.rounds = rounds_of_.empty() ? 0 : *std::max_element(rounds_of_.begin(), rounds_of_.end());
  } else {
    std::fill(rounds_of_.begin(), rounds_of_.end(), 0);
  }
  make_cells(s, records);
  make_groups(s);
  make_results(s);
}

// What every rank gets in all, the same numbers on all ranks; and where the own experts' results begin.
void RoutingTables::add_up(const Schedule& s, const std::vector<const int32_t*>& records) {
  const auto ranks = static_cast<size_t>(s.ranks());
  rows_of_.assign(ranks, 0);
  tokens_of_.assign(ranks, 0);
  rounds_of_.assign(ranks, 0);
  std::vector<int64_t> of_expert(static_cast<size_t>(s.experts.experts), 0);
  for (size_t r = 0; r < ranks; ++r) {
    tokens_of_[r] = tokens_in(records[r]);
    rounds_of_[r] = s.rounds_of_tokens(tokens_of_[r]);
    for (int32_t round = 0; round < rounds_of_[r]; ++round) {
      for (int32_t place = 0; place < s.experts.experts; ++place) {
        of_expert[static_cast<size_t>(place)] += rows(s, records, Rank{static_cast<int32_t>(r)}, round, place);
      }
    }
  }
  for (size_t place = 0; place < of_expert.size(); ++place) {
    rows_of_[static_cast<size_t>(s.experts.rank_of[place].value)] += of_expert[place];
  }
  offsets_.assign(1, 0);
  for (int32_t e = 0; e < s.own_experts(); ++e) {
    const int32_t place = s.experts.first_of(s.topology(), s.me()) + e;
    offsets_.push_back(offsets_.back() + of_expert[static_cast<size_t>(place)]);
  }
  for (size_t r = 0; r < ranks && !has_overflow() && !s.counts_only; ++r) {
    if (rows_of_[r] <= view_.most_rows) continue;
    view_.overflow_rank = Rank{static_cast<int32_t>(r)};
    view_.overflow_rows = rows_of_[r];
  }
}

// For each rank of the node its rows of a round lie by phase, expert and source.
void RoutingTables::make_cells(const Schedule& s, const std::vector<const int32_t*>& records) {
  const Topology& t = s.topology();
  const int32_t ranks = s.ranks(), rounds = view_.rounds, width = s.width();
  const int32_t first_place = s.experts.first_on(t, s.node());
  view_.places = s.experts.end_on(t, s.node()) - first_place;
  cells_.assign(static_cast<size_t>(int64_t{rounds} * view_.places * ranks), {});
  piece_rows_.assign(static_cast<size_t>(int64_t{rounds} * width * s.pieces * ranks), 0);
  staged_.assign(static_cast<size_t>(int64_t{rounds} * ranks), 0);
  node_tokens_.assign(static_cast<size_t>(int64_t{rounds} * t.nodes), 0);
  node_begin_.assign(node_tokens_.size(), 0);
  view_.cells = cells_.data();
  view_.piece_rows = piece_rows_.data();
  view_.staged = staged_.data();
  view_.node_tokens = node_tokens_.data();
  view_.node_begin = node_begin_.data();
  view_.rounds_of = rounds_of_.data();
  int32_t in_outbox = 0;
  for (int32_t round = 0; round < rounds; ++round) {
    for (int32_t r = 0; r < ranks; ++r) {
      if (t.same_node(Rank{r}, s.me())) continue;
      staged_[static_cast<size_t>(int64_t{round} * ranks + r)] =
          rows(s, records, Rank{r}, round, s.experts.experts + s.node().value);
    }
    for (int32_t n = 0; n < t.nodes; ++n) {
      const auto at = static_cast<size_t>(int64_t{round} * t.nodes + n);
      node_tokens_[at] = rows(s, records, s.me(), round, s.experts.experts + n);
      node_begin_[at] = in_outbox;
      in_outbox += node_tokens_[at];
    }
    for (int32_t local = 0; local < width; ++local) {
      int32_t begin = 0;
      for (int32_t phase = 0; phase < s.phases; ++phase) {
        const int32_t first = phase == 0 ? 0 : width, end = phase + 1 == s.phases ? ranks : width;
        for (int32_t piece = 0; piece < s.pieces; ++piece) {
          const RowRange places = s.piece_places(s.local(local), piece);
          for (int64_t place = places.begin; place < places.end; ++place) {
            for (int32_t position = first; position < end; ++position) {
              Cell& cell = cells_[static_cast<size_t>((int64_t{round} * view_.places + place) * ranks + position)];
              cell.rows = rows(s, records, s.source_at[position], round, first_place + static_cast<int32_t>(place));
              cell.begin = begin;
              begin += cell.rows;
              piece_rows_[static_cast<size_t>(((int64_t{round} * width + local) * s.pieces + piece) * ranks +
                                              position)] += cell.rows;
            }
          }
        }
      }
    }
  }
}

void RoutingTables::make_groups(const Schedule& s) {
  const int32_t ranks = s.ranks(), own = s.own_experts();
  view_.groups = s.phases * own;
  group_begin_.clear();
  group_tile_.assign(1, 0);
  for (int32_t round = 0; round < view_.rounds; ++round) {
    int32_t begin = 0;
    for (int32_t phase = 0; phase < s.phases; ++phase) {
      const int32_t first = phase == 0 ? 0 : s.width(), end = phase + 1 == s.phases ? ranks : s.width();
      for (int32_t e = 0; e < own; ++e) {
        group_begin_.push_back(begin);
        int32_t rows = 0;
        for (int32_t p = first; p < end; ++p) {
          rows +=
              cells_[static_cast<size_t>((int64_t{round} * view_.places + s.first_own_place() + e) * ranks + p)].rows;
        }
        begin += rows;
        group_tile_.push_back(group_tile_.back() + div_up(rows, s.tile_rows) * s.columns.blocks());
      }
    }
    group_begin_.push_back(begin);
  }
  view_.group_begin = group_begin_.data();
  view_.group_tile = group_tile_.data();
}

// Results lie by expert, source rank, token and slot, whatever the rounds.
void RoutingTables::make_results(const Schedule& s) {
  const int32_t ranks = s.ranks(), own = s.own_experts();
  result_row_.assign(static_cast<size_t>(int64_t{view_.rounds} * own * ranks), 0);
  for (int32_t e = 0; e < own; ++e) {
    int64_t row = offsets_[static_cast<size_t>(e)];
    for (int32_t r = 0; r < ranks; ++r) {
      const int32_t position = s.position_of[r];
      for (int32_t round = 0; round < view_.rounds; ++round) {
        result_row_[static_cast<size_t>((int64_t{round} * own + e) * ranks + position)] = row;
        row += cells_[static_cast<size_t>((int64_t{round} * view_.places + s.first_own_place() + e) * ranks + position)]
                   .rows;
      }
    }
  }
  view_.result_row = result_row_.data();
}

}  // namespace tilewire::moe_dispatch
