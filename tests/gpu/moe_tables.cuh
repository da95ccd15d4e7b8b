// The tables of a routing as a kernel has left them, against those that the host makes of the same routes.
#pragma once

#include "device/cuda_check.cuh"
#include "ops/moe_dispatch/device_launch.cuh"
#include "ops/moe_dispatch/device_parameters.cuh"
#include "ops/moe_dispatch/routing_fixture.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

namespace tilewire {

class MoeTablesCheck {
 public:
  // `s`: that of the kernel, with tables of the plan on the host.
  MoeTablesCheck(const moe_dispatch::FusedKernel& kernel, moe_dispatch::Schedule s, const moe_dispatch::Routes& routes,
                 int64_t most_rows)
      : rank_(s.me().value), got_(kernel.routing()), routed_(routes, most_rows), s_(s) {
    routed_.apply(s_);
  }

  // Wrong entries; the first one of each table is printed.
  int64_t count_wrong() {
    const moe_dispatch::Routing& right = *s_.routing;
    expect_number("rounds", got_.rounds, right.rounds);
    expect_number("overflow_rank", got_.overflow_rank.value, right.overflow_rank.value);
    expect_number("overflow_rows", got_.overflow_rows, right.overflow_rows);
    expect_number("places", got_.places, right.places);
    expect_number("groups", got_.groups, right.groups);
    if (wrong_ > 0) return wrong_;
    const int64_t ranks = s_.ranks(), nodes = s_.topology().nodes, own_rounds = s_.rounds_of_tokens(s_.tokens);
    const int64_t rounds = right.rounds, experts = s_.experts.experts, own = s_.own_experts();
    const int64_t listed = right.first_row[own_rounds * experts], sent = right.first_token[own_rounds * nodes];
    expect_table("slots", got_.slots, right.slots, s_.tokens * s_.top_k);
    expect_table("first_row", got_.first_row, right.first_row, own_rounds * experts + 1);
    expect_table("own_rows", got_.own_rows, right.own_rows, listed);
    expect_table("first_token", got_.first_token, right.first_token, own_rounds * nodes + 1);
    expect_table("own_tokens", got_.own_tokens, right.own_tokens, sent);
    expect_table("rounds_of", got_.rounds_of, right.rounds_of, ranks);
    expect_table("rows_of", got_.rows_of, right.rows_of, ranks);
    expect_table("tokens_of", got_.tokens_of, right.tokens_of, ranks);
    expect_table("place_rows", got_.place_rows, right.place_rows, experts);
    expect_table("offsets", got_.offsets, right.offsets, own + 1);
    expect_table("cells", got_.cells, right.cells, rounds * right.places * ranks);
    expect_table("piece_rows", got_.piece_rows, right.piece_rows, rounds * s_.width() * s_.pieces * ranks);
    expect_table("staged", got_.staged, right.staged, rounds * ranks);
    expect_table("node_tokens", got_.node_tokens, right.node_tokens, rounds * nodes);
    expect_table("node_begin", got_.node_begin, right.node_begin, rounds * nodes);
    expect_table("group_begin", got_.group_begin, right.group_begin, rounds * (right.groups + 1));
    expect_table("group_tile", got_.group_tile, right.group_tile, rounds * right.groups + 1);
    expect_table("result_row", got_.result_row, right.result_row, rounds * own * ranks);
    return wrong_;
  }

 private:
  void expect_number(const char* name, int64_t got, int64_t right) {
    if (got == right) return;
    ++wrong_;
    std::printf("  rank %d %s is %lld, not %lld\n", rank_, name, static_cast<long long>(got),
                static_cast<long long>(right));
  }
  template <class T>
  void expect_table(const char* name, const T* device, const T* right, int64_t count) {
    std::vector<T> got(static_cast<size_t>(count));
    if (count > 0) {
      check_cuda(cudaMemcpy(got.data(), device, got.size() * sizeof(T), cudaMemcpyDeviceToHost), "reading tables");
    }
    int64_t differing = 0;
    for (int64_t i = 0; i < count; ++i) {
      const T& seen = got[static_cast<size_t>(i)];
      if (std::memcmp(&seen, right + i, sizeof(T)) == 0 || differing++ > 0) continue;
      int32_t words[2][2] = {};
      std::memcpy(words[0], &seen, std::min(sizeof(T), sizeof(words[0])));
      std::memcpy(words[1], right + i, std::min(sizeof(T), sizeof(words[1])));
      std::printf("  rank %d %s[%lld of %lld] is (%d, %d), not (%d, %d)\n", rank_, name, static_cast<long long>(i),
                  static_cast<long long>(count), words[0][0], words[0][1], words[1][0], words[1][1]);
    }
    wrong_ += differing;
  }

  int32_t rank_;
  moe_dispatch::Routing got_;
  moe_dispatch::RoutedRanks routed_;
  moe_dispatch::Schedule s_;
  int64_t wrong_ = 0;
};

}  // namespace tilewire
