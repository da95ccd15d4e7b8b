#include "schedule/chunk_tables.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <limits>

namespace tilewire {

std::vector<int64_t> dealt_evenly(int64_t total, int32_t parts) {
  std::vector<int64_t> counts(static_cast<size_t>(parts), total / parts);
  for (int64_t i = 0; i < total % parts; ++i) ++counts[static_cast<size_t>(i)];
  return counts;
}

ChunkTables::ChunkTables(const std::vector<int64_t>& rows, int64_t chunk_rows, bool moves_data)
    : chunk_rows_(chunk_rows) {
  if (chunk_rows < 1) {
    throw Error(ErrorKind::invalid_argument,
                {.what = "chunk without rows", .values = fmt::format("chunk_rows = {}", chunk_rows), .limit = ">= 1"});
  }
  for (size_t s = 0; s < rows.size(); ++s) {
    const int64_t chunks = (!moves_data || rows[s] <= 0) ? 0 : 1 + (rows[s] - 1) / chunk_rows;
    if (rows[s] < 0 || chunks > std::numeric_limits<int32_t>::max() - chunk_begin_.back() ||
        rows[s] > std::numeric_limits<int64_t>::max() - row_begin_.back()) {
      throw Error(ErrorKind::invalid_argument, {.what = "row count out of range",
                                                .values = fmt::format("rows[{}] = {}", s, rows[s]),
                                                .limit = "0 <= rows, and fewer than 2^31 chunks in all"});
    }
    row_begin_.push_back(row_begin_.back() + rows[s]);
    chunk_begin_.push_back(chunk_begin_.back() + static_cast<int32_t>(chunks));
  }
}

ChunkMap ChunkTables::view() const {
  return {.sources = static_cast<int32_t>(row_begin_.size()) - 1,
          .chunk_rows = chunk_rows_,
          .row_begin = row_begin_.data(),
          .chunk_begin = chunk_begin_.data()};
}

}  // namespace tilewire
