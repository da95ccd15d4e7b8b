// How row-sharded matrices are cut into chunks, the unit of the network. A chunk is a run of whole rows of one source's
// shard; chunks of a source are numbered from 0. Over all sources, in row order, they also have a global number.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace tilewire {

struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
  TILEWIRE_HD constexpr int64_t rows() const { return end - begin; }
};

// Which of `ranges` ranges, cut at begins[0] <= begins[1] <= ..., holds the value: the last one that begins at it or
// before; empty ones hold none.
template <class T>
TILEWIRE_HD constexpr int32_t range_of(const T* begins, int32_t ranges, T value) {
  int32_t low = 0, high = ranges;
  while (high - low > 1) {
    const int32_t mid = low + (high - low) / 2;
    if (begins[mid] <= value) {
      low = mid;
    } else {
      high = mid;
    }
  }
  return low;
}

struct ChunkRef {
  Rank source;
  Chunk chunk;
};

// A view of two tables (see ChunkTables). Shards lie behind each other in rank order; a shard may have no rows.
struct ChunkMap {
  int32_t sources = 0;
  int64_t chunk_rows = 1;
  const int64_t* row_begin = nullptr;    // [sources + 1]
  const int32_t* chunk_begin = nullptr;  // [sources + 1], in global numbers

  TILEWIRE_HD constexpr int64_t total_rows() const { return row_begin[sources]; }
  TILEWIRE_HD constexpr int32_t total_chunks() const { return chunk_begin[sources]; }
  TILEWIRE_HD constexpr int64_t rows_of(Rank s) const { return row_begin[s.value + 1] - row_begin[s.value]; }
  TILEWIRE_HD constexpr int32_t chunks_of(Rank s) const { return chunk_begin[s.value + 1] - chunk_begin[s.value]; }

  // Global rows of a chunk; the last chunk of a source may be short.
  TILEWIRE_HD constexpr RowRange rows(ChunkRef c) const {
    const int64_t begin = row_begin[c.source.value] + int64_t{c.chunk.value} * chunk_rows;
    const int64_t end = begin + chunk_rows, shard_end = row_begin[c.source.value + 1];
    return {begin, end < shard_end ? end : shard_end};
  }
  TILEWIRE_HD constexpr ChunkRef at(int32_t global) const {
    const Rank s{range_of(chunk_begin, sources, global)};
    return {s, Chunk{global - chunk_begin[s.value]}};
  }
  TILEWIRE_HD constexpr int32_t global(ChunkRef c) const { return chunk_begin[c.source.value] + c.chunk.value; }
  // The chunk that holds a row. Needs 0 <= row < total_rows() and chunks that cover the rows.
  TILEWIRE_HD constexpr ChunkRef of_row(int64_t row) const {
    const Rank s{range_of(row_begin, sources, row)};
    return {s, Chunk{static_cast<int32_t>((row - row_begin[s.value]) / chunk_rows)}};
  }
};

}  // namespace tilewire
