// Fills in a rank's Routing, in two steps: its own tokens are counted, and when the counts of all ranks are here, each row
// gets its place. Allocates nothing. Host only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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

// Writes the own record of `s.tokens` tokens. `seen` is used: a number for each node.
void count_routes(const Schedule& s, const TokenRoutes& routes, std::span<int64_t> seen, std::span<int32_t> record);

// Of the same tokens and record: which rows and tokens go where (Routing::slots to first_token).
void list_routes(const Schedule& s, const TokenRoutes& routes, std::span<const int32_t> record);

// `records`: that of rank 0, with those of the others behind it (Buffers::record_bytes). Where a rank gets more than
// `most_rows`, nothing moves.
void route(const Schedule& s, int64_t most_rows, const std::byte* records);

// The tokens of a rank, as its record says.
int64_t tokens_in(const int32_t* record);

inline bool has_overflow(const Routing& routing) { return routing.overflow_rank.value >= 0; }

// Memory for the routing of a rank outside of a call.
class OwnedRouting {
 public:
  // Points `s` to it.
  void give(Schedule& s) {
    memory_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(s.buffers.tables_bytes));
    s.routing = place_routing(memory_.get(), s.buffers.tables);
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace tilewire::moe_dispatch
