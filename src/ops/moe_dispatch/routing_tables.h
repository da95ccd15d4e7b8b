// Makes and owns the tables of a rank's routing, in two steps: its own tokens are counted, and when the counts of all
// ranks are here, each row gets its place. Host only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/moe_dispatch/problem.h"
#include "ops/moe_dispatch/rank_schedule.h"

namespace tilewire::moe_dispatch {

// The experts that each token of a rank is for, -1 for none.
struct TokenRoutes {
  const int32_t* ids = nullptr;  // [tokens, k]
  int64_t tokens = 0;
  int32_t top_k = 1;

  int32_t expert(int64_t token, int32_t slot) const { return ids[token * top_k + slot]; }
};

// The tables behind an ExpertMap, and the order in which a receiver of the own node keeps the rows of all sources.
class ExpertTables {
 public:
  ExpertTables(const std::vector<int32_t>& rank_of_expert, const Topology& topology, Rank me, bool local_first);
  // The fields of `s` that say it; points into this.
  void fill(Schedule& s) const;

 private:
  std::vector<int32_t> first_, place_of_;
  std::vector<Rank> rank_of_;
  std::vector<Rank> source_at_;
  std::vector<int32_t> position_of_;
  int32_t phases_ = 1;
};

class RoutingTables {
 public:
  RoutingTables() = default;
  RoutingTables(const RoutingTables&) = delete;
  RoutingTables& operator=(const RoutingTables&) = delete;

  // `s.tokens` tokens: makes the lists of the own rows by round and expert, and of tokens by round and node, and writes
  // the own record.
  void count(const Schedule& s, const TokenRoutes& routes, std::span<int32_t> record);
  // `record_of(Rank)` gives the begin of each rank's record. Where a rank gets more than `most_rows`, nothing moves.
  template <class RecordOf>
  void route(const Schedule& s, int64_t most_rows, const RecordOf& record_of) {
    std::vector<const int32_t*> records;
    records.reserve(static_cast<size_t>(s.ranks()));
    for (int32_t r = 0; r < s.ranks(); ++r) records.push_back(record_of(Rank{r}));
    route_all(s, most_rows, records);
  }

  const Routing* view() const { return &view_; }
  // Own tokens for the expert at a place (of all experts), in order: token * k + slot.
  std::span<const int32_t> own_rows(int32_t round, int32_t place) const;
  // Own tokens for another node, in order.
  std::span<const int32_t> own_tokens(int32_t round, Node node) const;

  // ---- behind route()
  bool has_overflow() const { return view_.overflow_rank.value >= 0; }
  // Of all ranks, by rank: rows that they get, and tokens that they bring.
  const std::vector<int64_t>& rows_of() const { return rows_of_; }
  const std::vector<int64_t>& tokens_of() const { return tokens_of_; }
  // Rows before each own expert in the result, and all of them.
  const std::vector<int64_t>& offsets() const { return offsets_; }

 private:
  void route_all(const Schedule& s, int64_t most_rows, const std::vector<const int32_t*>& records);
  void add_up(const Schedule& s, const std::vector<const int32_t*>& records);
  void make_cells(const Schedule& s, const std::vector<const int32_t*>& records);
  void make_groups(const Schedule& s);
  void make_results(const Schedule& s);
  int32_t rows(const Schedule& s, const std::vector<const int32_t*>& records, Rank source, int32_t round,
               int32_t place) const;

  Routing view_;
  int32_t experts_ = 0;
  int32_t nodes_ = 0;
  std::vector<int32_t> own_first_, own_rows_, node_first_, own_tokens_;
  std::vector<int64_t> rows_of_, tokens_of_, offsets_;
  std::vector<int32_t> rounds_of_, piece_rows_, staged_, node_tokens_, node_begin_, group_begin_;
  std::vector<Cell> cells_;
  std::vector<int64_t> group_tile_, result_row_;
};

}  // namespace tilewire::moe_dispatch
