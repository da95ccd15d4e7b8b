// The tables behind a TileGrid whose tiles do not cross ranges of rows. Host only.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/tile_grid.h"

namespace tilewire {

// Where the shards of all sources begin, and the end of the last.
std::vector<int64_t> source_bounds(const ChunkMap& chunks);
// Where all chunks begin, and the end of the last. A grid over them suits whoever hands tiles on by chunks of any size.
std::vector<int64_t> chunk_bounds(const ChunkMap& chunks);

class RangeGridTables {
 public:
  // `bounds`: rows before each range, and all rows; from 0 on, never falling; an empty range has no tiles. Throws
  // Error(invalid_argument) for other bounds, tiles without rows, and more than 2^31 row blocks.
  RangeGridTables(std::vector<int64_t> bounds, int32_t tile_rows);
  // A grid of one column of tiles; points into the tables.
  TileGrid view() const;

 private:
  std::vector<int64_t> row_begin_;
  std::vector<int32_t> block_begin_{0};
  int32_t tile_rows_;
};

}  // namespace tilewire
