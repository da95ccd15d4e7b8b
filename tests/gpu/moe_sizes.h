// The calls that moe_dispatch_gpu_test makes: sizes, routings and plans.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "ops/moe_dispatch/device_plan.h"
#include "ops/moe_dispatch/routing_fixture.h"
#include "transport/emulated/emulated_transport.h"

#include <tilewire/data_type.h>

namespace tilewire {

struct MoeSize {
  std::string name;
  std::vector<int64_t> tokens;  // of each rank
  std::vector<int32_t> rank_of_expert;
  int32_t top_k = 1;
  int64_t h = 0;
  int64_t cols = 0;
  moe_dispatch::Skew skew = moe_dispatch::Skew::uniform;
  DataType type = DataType::bf16;
  bool is_b_n_major = true;
  bool is_64_bit = false;
  int64_t max_tokens = 0;    // 0: all rows that there can be
  int64_t block_tokens = 0;  // 0: all tokens in one round
  int64_t window = 1;
  int64_t chunk_tokens = 16;
  int64_t pieces = 1;
  bool local_first = true;
  bool is_fused = true;
  size_t form = 0;                   // of those that there are kernels in
  int32_t ctas = 16;                 // of each rank
  std::vector<int32_t> widths = {};  // ranks of each node; empty: all on one
  Personality personality = Personality::rc;
};

// `experts` dealt out to the ranks in turn.
inline std::vector<int32_t> dealt(int32_t experts, int32_t ranks) {
  std::vector<int32_t> rank_of;
  for (int32_t e = 0; e < experts; ++e) rank_of.push_back(e % ranks);
  return rank_of;
}

inline std::vector<MoeSize> moe_sizes_of_first_form() {
  using moe_dispatch::Skew;
  const std::vector<int64_t> four{130, 70, 0, 1};
  const std::vector<int32_t> uneven{3, 3, 0, 3, 1, 0, 3, 1, 3};
  return {
      {.name = "one rank", .tokens = {100}, .rank_of_expert = dealt(8, 1), .top_k = 2, .h = 72, .cols = 96},
      {.name = "one rank, many tiles",
       .tokens = {500},
       .rank_of_expert = dealt(6, 1),
       .top_k = 3,
       .h = 328,
       .cols = 520,
       .ctas = 32},
      {.name = "two ranks", .tokens = {130, 70}, .rank_of_expert = dealt(5, 2), .top_k = 2, .h = 136, .cols = 264},
      {.name = "four ranks, uneven",
       .tokens = four,
       .rank_of_expert = uneven,
       .top_k = 3,
       .h = 75,
       .cols = 333,
       .skew = Skew::with_none},
      {.name = "ids of 64 bits, weights as [I, H]",
       .tokens = four,
       .rank_of_expert = uneven,
       .top_k = 2,
       .h = 136,
       .cols = 130,
       .skew = Skew::zipf,
       .is_b_n_major = false,
       .is_64_bit = true},
      {.name = "fp16",
       .tokens = four,
       .rank_of_expert = dealt(12, 4),
       .top_k = 4,
       .h = 200,
       .cols = 260,
       .type = DataType::fp16},
      {.name = "rounds in a window",
       .tokens = {300, 200, 65, 130},
       .rank_of_expert = uneven,
       .top_k = 2,
       .h = 136,
       .cols = 130,
       .block_tokens = 40,
       .window = 2,
       .pieces = 3},
      {.name = "rounds, all to one expert",
       .tokens = {300, 200, 65, 130},
       .rank_of_expert = dealt(8, 4),
       .top_k = 2,
       .h = 136,
       .cols = 130,
       .skew = Skew::one,
       .block_tokens = 64},
      {.name = "rounds, each waited for",
       .tokens = {300, 200, 65, 130},
       .rank_of_expert = dealt(8, 4),
       .top_k = 2,
       .h = 136,
       .cols = 130,
       .block_tokens = 100,
       .window = 2,
       .pieces = 2,
       .is_fused = false},
      {.name = "no tokens",
       .tokens = {0, 0},
       .rank_of_expert = dealt(4, 2),
       .top_k = 2,
       .h = 64,
       .cols = 64,
       .max_tokens = 5},
      {.name = "H of 0", .tokens = {30, 5}, .rank_of_expert = dealt(4, 2), .top_k = 2, .h = 0, .cols = 64},
      {.name = "I of 0", .tokens = {30, 5}, .rank_of_expert = dealt(4, 2), .top_k = 2, .h = 64, .cols = 0},
      {.name = "too many rows",
       .tokens = {100, 20},
       .rank_of_expert = dealt(4, 2),
       .top_k = 2,
       .h = 64,
       .cols = 64,
       .skew = Skew::one,
       .max_tokens = 239},
      {.name = "256 experts",
       .tokens = {120, 77},
       .rank_of_expert = dealt(256, 2),
       .top_k = 8,
       .h = 64,
       .cols = 72,
       .skew = Skew::zipf},
      {.name = "1 + 1 nodes",
       .tokens = {130, 70},
       .rank_of_expert = dealt(5, 2),
       .top_k = 3,
       .h = 136,
       .cols = 264,
       .widths = {1, 1}},
      {.name = "2x2 nodes",
       .tokens = {130, 70, 33, 90},
       .rank_of_expert = uneven,
       .top_k = 3,
       .h = 136,
       .cols = 130,
       .skew = Skew::with_none,
       .widths = {2, 2}},
      {.name = "2x2 nodes, rounds in a window",
       .tokens = {300, 200, 65, 130},
       .rank_of_expert = uneven,
       .top_k = 2,
       .h = 136,
       .cols = 130,
       .block_tokens = 40,
       .window = 2,
       .pieces = 2,
       .widths = {2, 2}},
      {.name = "2x2 nodes, one slot, srd",
       .tokens = {300, 0, 65, 130},
       .rank_of_expert = dealt(8, 4),
       .top_k = 4,
       .h = 136,
       .cols = 130,
       .skew = Skew::zipf,
       .block_tokens = 40,
       .local_first = false,
       .widths = {2, 2},
       .personality = Personality::srd},
      {.name = "1 + 3 nodes, srd",
       .tokens = {130, 70, 33, 90},
       .rank_of_expert = dealt(9, 4),
       .top_k = 5,
       .h = 72,
       .cols = 130,
       .widths = {1, 3},
       .personality = Personality::srd},
  };
}

// And some of them in tiles of every other form, which are alike but for their tiles.
inline std::vector<MoeSize> moe_sizes() {
  std::vector<MoeSize> sizes = moe_sizes_of_first_form();
  const size_t count = sizes.size();
  for (size_t form = 1; form < moe_dispatch::FusedPlan::kForms.size(); ++form) {
    for (const char* name : {"one rank, many tiles", "ids of 64 bits, weights as [I, H]", "fp16", "rounds in a window",
                             "I of 0", "2x2 nodes, rounds in a window"}) {
      const auto end = sizes.begin() + static_cast<ptrdiff_t>(count);
      const auto size = std::find_if(sizes.begin(), end, [&](const MoeSize& s) { return s.name == name; });
      if (size == end) throw std::logic_error(std::string("there is no size ") + name);
      MoeSize other = *size;
      other.form = form;
      other.name += std::string(", ") + moe_dispatch::FusedPlan::kForms[form].name;
      sizes.push_back(other);
    }
  }
  return sizes;
}

// A rank, a node, and two nodes with rounds in a window.
inline std::vector<MoeSize> small_moe_sizes() {
  return {
      {.name = "one rank", .tokens = {9}, .rank_of_expert = dealt(3, 1), .top_k = 2, .h = 72, .cols = 40, .ctas = 4},
      {.name = "two ranks, rounds in a window",
       .tokens = {17, 5},
       .rank_of_expert = dealt(3, 2),
       .top_k = 2,
       .h = 64,
       .cols = 24,
       .block_tokens = 8,
       .window = 2,
       .ctas = 4},
      {.name = "1 + 1 nodes",
       .tokens = {17, 5},
       .rank_of_expert = dealt(3, 2),
       .top_k = 2,
       .h = 64,
       .cols = 24,
       .block_tokens = 8,
       .window = 2,
       .chunk_tokens = 4,
       .ctas = 4,
       .widths = {1, 1}}};
}

}  // namespace tilewire
