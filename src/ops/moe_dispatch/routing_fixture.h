// Routings for tests: the experts of all ranks' tokens, drawn in several ways, and the tables of every rank as a call
// makes them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "ops/moe_dispatch/routing_tables.h"

namespace tilewire::moe_dispatch {

enum class Skew {
  uniform,
  zipf,       // expert e with a weight of 1 / (e + 1)
  one,        // all to expert 0
  with_none,  // a third of all are -1, and the same expert comes twice
};

// [tokens * k] experts of one rank.
inline std::vector<int32_t> draw_routes(Skew skew, int64_t tokens, int32_t top_k, int32_t experts,
                                        std::mt19937_64& random) {
  std::vector<double> weights(static_cast<size_t>(experts), 1.0);
  for (size_t e = 0; e < weights.size() && skew == Skew::zipf; ++e) weights[e] = 1.0 / static_cast<double>(e + 1);
  std::discrete_distribution<int32_t> draw(weights.begin(), weights.end());
  std::vector<int32_t> ids(static_cast<size_t>(tokens * top_k));
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = skew == Skew::one ? 0 : draw(random);
    if (skew == Skew::with_none && random() % 3 == 0) ids[i] = -1;
    if (skew == Skew::with_none && i % static_cast<size_t>(top_k) != 0 && random() % 4 == 0) ids[i] = ids[i - 1];
  }
  return ids;
}

// The experts of all ranks' tokens.
struct Routes {
  int32_t top_k = 1;
  std::vector<std::vector<int32_t>> ids;  // by rank

  int64_t tokens(Rank r) const { return static_cast<int64_t>(ids[static_cast<size_t>(r.value)].size()) / top_k; }
  int32_t expert(Rank r, int64_t token, int32_t slot) const {
    return ids[static_cast<size_t>(r.value)][static_cast<size_t>(token * top_k + slot)];
  }
  TokenRoutes of(Rank r) const { return {ids[static_cast<size_t>(r.value)].data(), tokens(r), top_k}; }
};

inline Routes draw_all_routes(Skew skew, const std::vector<int64_t>& tokens, int32_t top_k, int32_t experts,
                              uint64_t seed) {
  std::mt19937_64 random(seed);
  Routes routes{.top_k = top_k, .ids = {}};
  for (const int64_t count : tokens) routes.ids.push_back(draw_routes(skew, count, top_k, experts, random));
  return routes;
}

// The tables of the rank whose schedule this is, and its tokens. They live as long as this.
class RoutedRanks {
 public:
  RoutedRanks(Routes routes, int64_t most_rows) : routes_(std::move(routes)), most_rows_(most_rows) {}

  void apply(Schedule& s) {
    memory_.emplace_back().give(s);
    const auto bytes = static_cast<size_t>(s.buffers.record_bytes);
    std::vector<std::byte> records(bytes * static_cast<size_t>(s.ranks()));
    std::vector<int64_t> seen(static_cast<size_t>(s.topology().nodes));
    for (int32_t r = 0; r < s.ranks(); ++r) {
      Schedule of_rank = s;
      of_rank.frame.me = Rank{r};
      of_rank.tokens = routes_.tokens(Rank{r});
      const std::span record{reinterpret_cast<int32_t*>(records.data() + static_cast<size_t>(r) * bytes),
                             static_cast<size_t>(s.record_words(s.rounds_of_tokens(of_rank.tokens)))};
      count_routes(of_rank, routes_.of(Rank{r}), seen, record);
      if (Rank{r} == s.me()) list_routes(of_rank, routes_.of(Rank{r}), record);
    }
    s.tokens = routes_.tokens(s.me());
    route(s, most_rows_, records.data());
  }
  const Routes& routes() const { return routes_; }

 private:
  Routes routes_;
  int64_t most_rows_;
  std::vector<OwnedRouting> memory_;
};

}  // namespace tilewire::moe_dispatch
