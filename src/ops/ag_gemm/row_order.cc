#include "ops/ag_gemm/row_order.h"

#include <algorithm>
#include <numeric>

namespace tilewire::ag_gemm {
namespace {

// How many steps of a rotation over `size` members lie before the step from `from` to `to`.
int32_t rotation_step(int32_t from, int32_t to, int32_t size) { return (to - from - 1 + size) % size; }

}  // namespace

double expected_arrival_s(const Schedule& s, ChunkRef chunk, const Machine& m) {
  const Topology& t = s.topology();
  const double bytes = static_cast<double>(s.chunks.chunk_rows * s.buffers.pitch_bytes);
  const int32_t c = chunk.chunk.value;
  if (chunk.source == s.me()) return 0;
  const Node here = t.node(s.me()), there = t.node(chunk.source);
  const int32_t width = t.ranks_on(here);
  const Rank entry = t.entry_rank(chunk.source, s.me());
  const double hop = bytes / m.node_bytes_per_s;
  if (here == there) {
    const int32_t step = rotation_step(t.local(chunk.source).value, t.local(s.me()).value, width);
    return m.node_latency_s + (c * (width - 1) + step + 1) * hop;
  }
  const int32_t step = rotation_step(there.value, here.value, t.nodes);
  const double landed = m.network_latency_s + (c * (t.nodes - 1) + step + 1) * bytes / m.network_bytes_per_s;
  if (entry == s.me()) return landed;
  return landed + m.node_latency_s + (rotation_step(t.local(entry).value, t.local(s.me()).value, width) + 1) * hop;
}

std::vector<int32_t> expected_row_order(const Schedule& s, const Machine& machine) {
  std::vector<int32_t> order(s.grid.row_blocks);
  std::iota(order.begin(), order.end(), 0);
  if (s.chunks.total_chunks() == 0) return order;
  std::vector<double> ready(s.grid.row_blocks, 0);
  for (int32_t b = 0; b < s.grid.row_blocks; ++b) {
    const RowRange rows = s.grid.block_rows(b);
    const int32_t last = s.chunks.global(s.chunks.of_row(rows.end - 1));
    for (int32_t g = s.chunks.global(s.chunks.of_row(rows.begin)); g <= last; ++g) {
      ready[b] = std::max(ready[b], expected_arrival_s(s, s.chunks.at(g), machine));
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return ready[a] < ready[b]; });
  return order;
}

}  // namespace tilewire::ag_gemm
