// The grid of output tiles of a matrix [rows, cols], with ragged edges, and the order in which it is walked.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "schedule/chunk_map.h"

namespace tilewire {

struct TileGrid {
  int64_t rows = 0;
  int32_t tile_rows = 1;
  int32_t row_blocks = 0;   // div_up(rows, tile_rows)
  int32_t col_blocks = 0;   // over all weights, plus one where the gathered rows are wanted too
  int32_t raster_rows = 1;  // row blocks that are walked together, column by column, so that weights stay in cache

  TILEWIRE_HD constexpr int64_t tiles() const { return int64_t{row_blocks} * col_blocks; }
  TILEWIRE_HD constexpr RowRange block_rows(int32_t row_block) const {
    const int64_t begin = int64_t{row_block} * tile_rows, end = begin + tile_rows;
    return {begin, end < rows ? end : rows};
  }

  struct Position {
    int32_t row_step;  // position in the order of row blocks, not the row block itself
    int32_t col_block;
  };
  // The t-th tile of the walk: groups of raster_rows row steps, inside a group column by column.
  TILEWIRE_HD constexpr Position position(int64_t t) const {
    const int64_t group_tiles = int64_t{raster_rows} * col_blocks;
    const int32_t group = static_cast<int32_t>(t / group_tiles);
    const int64_t in_group = t - group * group_tiles;
    const int32_t first = group * raster_rows;
    const int32_t height = row_blocks - first < raster_rows ? row_blocks - first : raster_rows;
    return {first + static_cast<int32_t>(in_group % height), static_cast<int32_t>(in_group / height)};
  }
};

}  // namespace tilewire
