#include "ops/ag_gemm/row_order.h"

#include <algorithm>
#include <numeric>

namespace tilewire::ag_gemm {

std::vector<int32_t> expected_row_order(const Schedule& s, const std::vector<double>& arrivals_s) {
  std::vector<int32_t> order(static_cast<size_t>(s.grid.row_blocks));
  std::iota(order.begin(), order.end(), 0);
  if (s.chunks.total_chunks() == 0) return order;
  std::vector<double> ready_s(order.size(), 0);
  for (int32_t b = 0; b < s.grid.row_blocks; ++b) {
    const RowRange rows = s.grid.block_rows(b);
    const int32_t last = s.chunks.global(s.chunks.of_row(rows.end - 1));
    for (int32_t g = s.chunks.global(s.chunks.of_row(rows.begin)); g <= last; ++g) {
      if (s.chunks.at(g).source == s.me()) continue;
      ready_s[static_cast<size_t>(b)] = std::max(ready_s[static_cast<size_t>(b)], arrivals_s[static_cast<size_t>(g)]);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return ready_s[static_cast<size_t>(a)] < ready_s[static_cast<size_t>(b)];
  });
  return order;
}

}  // namespace tilewire::ag_gemm
