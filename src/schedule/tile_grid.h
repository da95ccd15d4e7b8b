// The grid of output tiles of a matrix [rows, cols], with ragged edges, and the order in which it is walked.
//
// It has two forms. Over all rows together, so that many small shards share a tile; or over ranges of rows (owners,
// chunks), so that no tile has rows of two: each range then has a ragged edge of its own. RangeGridTables makes the
// second one.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "schedule/chunk_map.h"

namespace tilewire {

struct TileGrid {
  int64_t rows = 0;
  int32_t tile_rows = 1;
  int32_t row_blocks = 0;   // div_up(rows, tile_rows), summed over the ranges; those behind the last row are empty
  int32_t col_blocks = 0;   // over all weights, plus one where the gathered rows are wanted too
  int32_t raster_rows = 1;  // row blocks that are walked together, column by column, so that weights stay in cache
  int32_t ranges = 0;       // 0: all rows together
  const int64_t* row_begin = nullptr;    // [ranges + 1] rows before each range
  const int32_t* block_begin = nullptr;  // [ranges + 1] row blocks before each range

  TILEWIRE_HD constexpr int64_t tiles() const { return int64_t{row_blocks} * col_blocks; }
  // The range that a row block is of; 0 where there are none.
  TILEWIRE_HD constexpr int32_t range(int32_t row_block) const {
    return ranges == 0 ? 0 : range_of(block_begin, ranges, row_block);
  }
  TILEWIRE_HD constexpr RowRange block_rows(int32_t row_block) const {
    int64_t first = 0, limit = rows;
    if (ranges > 0) {
      const int32_t r = range(row_block);
      first = row_begin[r];
      limit = row_begin[r + 1];
      row_block -= block_begin[r];
    }
    const int64_t begin = first + int64_t{row_block} * tile_rows, end = begin + tile_rows;
    return {begin < limit ? begin : limit, end < limit ? end : limit};
  }

  struct Position {
    int32_t row_step;  // position in the order of row blocks, not the row block itself
    int32_t col_block;
  };
  // The t-th tile of the walk: groups of raster_rows row steps, inside a group column by column.
  TILEWIRE_HD constexpr Position position(int64_t t) const {
#if defined(__CUDA_ARCH__)
    // Each thread of a kernel comes by here, and 64 bits take a hundred instructions to divide. As many tiles as do not
    // fit into 32 bits no GPU has memory for.
    uint32_t columns = static_cast<uint32_t>(col_blocks);
    asm volatile("" : "+r"(columns));  // or what divisions need is kept in registers from tile to tile
    return position_in(static_cast<uint32_t>(t), columns);
#else
    return position_in(t, int64_t{col_blocks});
#endif
  }

 private:
  template <class Number>
  TILEWIRE_HD constexpr Position position_in(Number tile, Number columns) const {
    const int32_t together = raster_rows < row_blocks ? raster_rows : row_blocks;
    const Number group_tiles = static_cast<Number>(together) * columns;
    const Number group = tile / group_tiles, in_group = tile - group * group_tiles;
    const int32_t first = static_cast<int32_t>(group) * together;
    const int32_t height = row_blocks - first < together ? row_blocks - first : together;
    const Number col = in_group / static_cast<Number>(height);
    return {first + static_cast<int32_t>(in_group - col * static_cast<Number>(height)), static_cast<int32_t>(col)};
  }
};

}  // namespace tilewire
