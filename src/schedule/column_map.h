// The column blocks of one or several weights that share their left operand, and, last, an optional block that stands
// for "copy the rows themselves".
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace tilewire {

struct ColumnMap {
  static constexpr int32_t kMaxWeights = 8;

  int32_t weights = 0;
  int32_t tile_cols = 1;
  bool has_gather_copy = false;
  int64_t cols[kMaxWeights] = {};  // columns of each weight, 0 is legal

  struct Block {
    int32_t weight = 0;
    int64_t begin = 0;  // columns of that weight
    int64_t end = 0;
    bool is_gather_copy = false;
  };

  TILEWIRE_HD constexpr int32_t blocks_of(int32_t weight) const {
    return static_cast<int32_t>((cols[weight] + tile_cols - 1) / tile_cols);
  }
  TILEWIRE_HD constexpr int32_t blocks() const {
    int32_t sum = has_gather_copy ? 1 : 0;
    for (int32_t w = 0; w < weights; ++w) sum += blocks_of(w);
    return sum;
  }
  TILEWIRE_HD constexpr Block block(int32_t index) const {
    for (int32_t w = 0; w < weights; ++w) {
      const int32_t mine = blocks_of(w);
      if (index < mine) {
        const int64_t begin = int64_t{index} * tile_cols, end = begin + tile_cols;
        return {w, begin, end < cols[w] ? end : cols[w], false};
      }
      index -= mine;
    }
    return {.is_gather_copy = true};
  }
};

}  // namespace tilewire
