// The obvious MoE dispatch + grouped GEMM: slow, trusted, and sharing no code with the fast one. For tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tilewire::moe_dispatch {

struct ReferenceRow {
  int32_t expert = 0;
  int32_t rank = 0;  // whose token it is
  int32_t token = 0;
  int32_t slot = 0;
};

// The rows of a rank in their order: by own expert, then by rank, token and slot. `ids` has each rank's [tokens, k].
inline std::vector<ReferenceRow> reference_rows(const std::vector<std::vector<int32_t>>& ids, int32_t top_k,
                                                const std::vector<int32_t>& rank_of_expert, int32_t me) {
  std::vector<ReferenceRow> rows;
  for (int32_t expert = 0; expert < static_cast<int32_t>(rank_of_expert.size()); ++expert) {
    if (rank_of_expert[static_cast<size_t>(expert)] != me) continue;
    for (int32_t rank = 0; rank < static_cast<int32_t>(ids.size()); ++rank) {
      const std::vector<int32_t>& of_rank = ids[static_cast<size_t>(rank)];
      for (int32_t i = 0; i < static_cast<int32_t>(of_rank.size()); ++i) {
        if (of_rank[static_cast<size_t>(i)] == expert) rows.push_back({expert, rank, i / top_k, i % top_k});
      }
    }
  }
  return rows;
}

// One element: x(h) * w(h) summed over h in double.
template <class X, class W>
double reference_element(int64_t depth, const X& x, const W& w) {
  double sum = 0;
  for (int64_t h = 0; h < depth; ++h) sum += x(h) * w(h);
  return sum;
}

}  // namespace tilewire::moe_dispatch
