// What the work of a rank's items costs, for planner and simulator alike.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/attention/schedule.h"
#include "schedule/machine.h"

namespace tilewire::attention {

// About how many scores of a tile with a block of keys (by global number) are not masked. Exact where none is, and where
// all rows see as much.
inline double scores_of(const Schedule& s, int32_t tile, int32_t block) {
  const SpanBounds& rows = s.tile_spans[tile];
  const KeyBounds& keys = s.block_keys[block];
  const int64_t count = s.blocks.rows(s.blocks.at(block)).rows();
  const auto all = static_cast<double>(s.tile_range(tile).rows() * count);
  if (all_meet(rows, keys)) return all;
  // Between what all rows see and what any of them does.
  const auto seen = [&](KeySpan span) {
    const int64_t begin = std::max(span.begin, keys.least), end = std::min(span.end, keys.most + 1);
    return end <= begin ? 0.0 : static_cast<double>(end - begin) / static_cast<double>(keys.most + 1 - keys.least);
  };
  return all * (seen(rows.any) + seen(rows.all)) / 2;
}

// Beside the two products, the softmax: as much as so many flops a score, and a row of keys and values that is loaded.
inline constexpr double kScoreFlops = 64;

// Of an item with the blocks that it looks at of a source.
inline double item_flops(const Schedule& s, const ItemWork& w) {
  const int64_t head_dim = s.buffers.row_bytes / 4;  // of 16-bit elements, of key and value
  double flops = 0;
  for (int32_t i = 0; i < w.blocks.count; ++i) {
    const ChunkRef block{w.source, Chunk{w.blocks.first + i}};
    if (!s.is_looked_at(w.tile, block)) continue;
    flops += scores_of(s, w.tile, s.blocks.global(block)) * (4 * static_cast<double>(head_dim) + kScoreFlops);
    flops += kOperandFlops * static_cast<double>(s.blocks.rows(block).rows() * 2 * head_dim);
  }
  return flops;
}

// In step-major order: the sums of an item, in fp32, come from memory and go back between two sources.
inline int64_t kept_bytes(const Schedule& s, const ItemWork& w) {
  if (!s.is_step_major) return 0;
  const int64_t head_dim = s.buffers.row_bytes / 4, sums = (w.is_first ? 0 : 1) + (w.is_last ? 0 : 1);
  return sums * s.tile_range(w.tile).rows() * (head_dim + 2) * int64_t{sizeof(float)};
}

// How long the longest worker of a rank computes.
inline double longest_compute_s(const Schedule& s, const Machine& machine) {
  double longest_s = 0;
  for (int32_t worker = 0; worker < s.workers; ++worker) {
    double alone_s = 0;
    ItemWork w;
    for (ComputeRole role(s, worker); role.next(w);) {
      alone_s += machine.step_s;
      if (w.is_end) continue;
      alone_s += item_flops(s, w) / machine.worker_flops;
      alone_s += static_cast<double>(kept_bytes(s, w)) / machine.copy_bytes_per_s;
    }
    longest_s = std::max(longest_s, alone_s);
  }
  return longest_s;
}

}  // namespace tilewire::attention
