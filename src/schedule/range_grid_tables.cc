#include "schedule/range_grid_tables.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <limits>
#include <utility>

#include "base/bytes.h"

namespace tilewire {

std::vector<int64_t> source_bounds(const ChunkMap& chunks) {
  return {chunks.row_begin, chunks.row_begin + chunks.sources + 1};
}

std::vector<int64_t> chunk_bounds(const ChunkMap& chunks) {
  std::vector<int64_t> bounds;
  bounds.reserve(static_cast<size_t>(chunks.total_chunks()) + 1);
  for (int32_t g = 0; g < chunks.total_chunks(); ++g) bounds.push_back(chunks.rows(chunks.at(g)).begin);
  bounds.push_back(chunks.total_rows());
  return bounds;
}

RangeGridTables::RangeGridTables(std::vector<int64_t> bounds, int32_t tile_rows)
    : row_begin_(std::move(bounds)), tile_rows_(tile_rows) {
  const auto refuse = [](const char* what, std::string values, const char* limit) {
    throw Error(ErrorKind::invalid_argument, {.what = what, .values = std::move(values), .limit = limit});
  };
  if (tile_rows < 1) refuse("tile without rows", fmt::format("tile_rows = {}", tile_rows), ">= 1");
  if (row_begin_.empty() || row_begin_[0] != 0) refuse("ranges that do not begin at row 0", "bounds[0]", "0");
  for (size_t r = 0; r + 1 < row_begin_.size(); ++r) {
    const int64_t rows = row_begin_[r + 1] - row_begin_[r];
    if (rows < 0) refuse("a range of negative length", fmt::format("{} rows from {} on", rows, row_begin_[r]), ">= 0");
    const int64_t blocks = block_begin_.back() + div_up(rows, int64_t{tile_rows});
    if (blocks > std::numeric_limits<int32_t>::max()) {
      refuse("too many row blocks", fmt::format("{} in the first {} ranges", blocks, r + 1), "fewer than 2^31");
    }
    block_begin_.push_back(static_cast<int32_t>(blocks));
  }
}

TileGrid RangeGridTables::view() const {
  return {.rows = row_begin_.back(),
          .tile_rows = tile_rows_,
          .row_blocks = block_begin_.back(),
          .col_blocks = 1,
          .ranges = static_cast<int32_t>(row_begin_.size()) - 1,
          .row_begin = row_begin_.data(),
          .block_begin = block_begin_.data()};
}

}  // namespace tilewire
