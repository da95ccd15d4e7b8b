#include "ops/ag_gemm/cost.h"

#include <algorithm>

#include "base/bytes.h"

namespace tilewire::ag_gemm {
namespace {

struct Volume {
  double largest_shard_bytes = 0;
  double total_bytes = 0;
  double chunk_bytes = 0;
  double chunks = 0;  // of the largest shard
};

Volume volume(const Problem& p, int64_t chunk_rows) {
  const double pitch = static_cast<double>(round_up(p.k * size_bytes(p.dtype), kWireUnitBytes));
  const int64_t most = *std::max_element(p.rows.begin(), p.rows.end());
  return {.largest_shard_bytes = pitch * static_cast<double>(most),
          .total_bytes = pitch * static_cast<double>(p.total_rows()),
          .chunk_bytes = pitch * static_cast<double>(std::min(chunk_rows, most)),
          .chunks = static_cast<double>(div_up(most, chunk_rows))};
}

int32_t widest_node(const Topology& t) {
  int32_t most = 0;
  for (int32_t n = 0; n < t.nodes; ++n) most = std::max(most, t.ranks_on(Node{n}));
  return most;
}

// The time on the busiest kind of link, and what the last chunk adds behind it.
struct Wire {
  double busy_s = 0;
  double tail_s = 0;
};

Wire wire(const Problem& p, int64_t chunk_rows, const PlanContext& x) {
  const Topology& t = x.topology;
  const Machine& m = x.machine;
  const Volume v = volume(p, chunk_rows);
  const double width = widest_node(t), nodes = t.nodes;
  // A rank pushes its shard to its local peers and forwards what enters the node at it.
  const double node_bytes = (width - 1) * v.largest_shard_bytes + (width - 1) * (nodes - 1) * v.largest_shard_bytes;
  const double network_bytes = (nodes - 1) * v.largest_shard_bytes;
  const double node_s = node_bytes / m.node_bytes_per_s + (width - 1) * nodes * v.chunks * m.step_s;
  const double network_s =
      nodes > 1 ? m.network_latency_s + network_bytes / m.network_bytes_per_s + (nodes - 1) * v.chunks * m.step_s : 0;
  const double last_hop = width > 1 ? m.node_latency_s + v.chunk_bytes / m.node_bytes_per_s : 0;
  return {.busy_s = v.largest_shard_bytes / m.copy_bytes_per_s / std::max(1.0, v.chunks) + std::max(node_s, network_s),
          .tail_s = nodes > 1 ? last_hop : 0};
}

}  // namespace

double exposed_communication_s(const Problem& problem, int64_t chunk_rows, const PlanContext& context) {
  const Wire w = wire(problem, chunk_rows, context);
  return w.busy_s + w.tail_s;
}

Cost predict(const Problem& p, const PlanChoice& c, const PlanContext& x) {
  const Machine& m = x.machine;
  const double row_blocks = static_cast<double>(div_up(p.total_rows(), c.tile_rows));
  double col_blocks = 0, padded_cols = 0;
  for (const int64_t n : p.cols) {
    col_blocks += static_cast<double>(div_up(n, c.tile_cols));
    padded_cols += static_cast<double>(n);
  }
  // A smaller tile converts and loads its operands more often for the same arithmetic.
  const double traffic = 1.0 + 12.0 / c.tile_rows + 12.0 / c.tile_cols;
  const double tiles = row_blocks * col_blocks;
  const double rounds = static_cast<double>(div_up(static_cast<int64_t>(tiles), c.workers));
  const double tile_flops = tiles == 0 ? 0
                                       : 2.0 * static_cast<double>(p.total_rows()) / row_blocks *
                                             static_cast<double>(p.k) * padded_cols / col_blocks;
  const double tile_s = tile_flops * traffic / m.worker_flops + m.step_s;
  Cost cost;
  cost.compute_s = rounds * tile_s;
  const Wire w = wire(p, c.chunk_rows, x);
  cost.communication_s = w.busy_s + w.tail_s;
  // The row blocks that need the last chunk, over all columns, cannot start before it is here.
  const double last_tiles = tiles == 0 ? 0 : col_blocks / c.workers * tile_s;
  cost.total_s = c.is_fused ? std::max(cost.compute_s, cost.communication_s + last_tiles) + m.step_s
                            : cost.compute_s + cost.communication_s;
  return cost;
}

}  // namespace tilewire::ag_gemm
