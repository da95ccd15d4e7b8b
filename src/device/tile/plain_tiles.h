// The role of a plain GEMM: all tiles of one output, which need nothing and publish nothing.
#pragma once

#include "schedule/column_map.h"
#include "schedule/role.h"
#include "schedule/tile_grid.h"

namespace tilewire {

struct PlainTiles {
  TileGrid grid;  // of works: the tiles of a cluster together
  int32_t work_cols = 1;
  int64_t cols = 0;
  int32_t workers = 1;  // clusters
};

class PlainTileRole {
 public:
  struct Work : WorkBase {
    RowRange rows;
    ColumnMap::Block columns;
  };

  TILEWIRE_HD constexpr PlainTileRole(const PlainTiles& tiles, int32_t worker) : tiles_(tiles), tile_(worker) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    if (tile_ >= tiles_.grid.tiles()) return false;
    const TileGrid::Position at = tiles_.grid.position(tile_);
    w.rows = tiles_.grid.block_rows(at.row_step);
    w.columns.begin = int64_t{at.col_block} * tiles_.work_cols;
    w.columns.end = w.columns.begin + tiles_.work_cols < tiles_.cols ? w.columns.begin + tiles_.work_cols : tiles_.cols;
    tile_ += tiles_.workers;
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work&, int32_t) const { return {}; }
  TILEWIRE_HD constexpr Publish publish(const Work&, int32_t) const { return {}; }

 private:
  const PlainTiles& tiles_;
  int64_t tile_;
};

}  // namespace tilewire
