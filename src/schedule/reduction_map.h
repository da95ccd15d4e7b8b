// How a matrix that is summed over all ranks is cut, and where its parts lie on their way. The unit of computing, of the
// network and of signals is a chunk: a block of rows times a block of columns. Each chunk has an owner, the rank that
// gets its sum. Either each owner has rows of its own, which are cut into its chunks; or the whole matrix is cut into
// chunks, which are dealt out.
//
// The rail partner of an owner on a node (Topology::rail_partner) takes the partial sums of all ranks of its node, adds
// them and sends one node sum to the owner. So a rank takes partial sums for the owners of its rail: those of which it
// is the rail partner, itself included.
//
// Partial sums and node sums lie in slots, one for each source. An owner's chunks share its slots under a window: chunk
// c goes into slot c mod window, once whoever reads chunk c - window there has said so.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "schedule/chunk_map.h"
#include "schedule/topology.h"

namespace tilewire {

struct OwnedChunk {
  Rank owner;
  Chunk chunk;  // number within the owner's, see ReductionMap::block_of. As are global numbers
};

struct ColumnRange {
  int64_t begin = 0;
  int64_t end = 0;
  TILEWIRE_HD constexpr int64_t cols() const { return end - begin; }
};

// As one rank sees it. The tables behind it are those of ReductionTables.
struct ReductionMap {
  ChunkMap blocks;  // by owner: blocks of its rows, each cut into `col_blocks`; or chunks that were dealt out, and one
  int64_t cols = 0;
  int64_t chunk_cols = 1;
  int32_t col_blocks = 0;
  int32_t band_blocks = 1;       // blocks of columns that an owner's chunks go through together; where it has rows
  int32_t dealt_row_blocks = 0;  // of the whole matrix, where its chunks were dealt out; 0: owners have rows
  int64_t dealt_chunk_rows = 1;
  int64_t dealt_rows = 0;  // of the whole matrix
  int32_t window = 1;      // slots of an owner for each source; as many as chunks or more: none is used twice

  // Of each owner at its rail partner on the own node: chunks, and slots of one source, of the owners before it there.
  const int32_t* rail_chunk = nullptr;    // [ranks]
  const int32_t* rail_slot = nullptr;     // [ranks]
  const int32_t* source_slots = nullptr;  // [ranks of the own node] slots that one source has at each of them

  // Chunks by global number, in rounds: chunk j of every owner before chunk j + 1 of any.
  const int32_t* order = nullptr;       // [total_chunks()] in which this rank computes
  const int32_t* rail_order = nullptr;  // [rail_chunks] of the own rail, of owners on other nodes
  int32_t rail_chunks = 0;
  int32_t ahead_rounds = 0;     // so many rounds a role may wait ahead; more would not fit the window
  int32_t fewest_in_round = 1;  // chunks in any round of `order`
  int32_t fewest_on_rail = 1;   // chunks in any round of `rail_order`

  TILEWIRE_HD constexpr int32_t chunks_of(Rank owner) const { return blocks.chunks_of(owner) * col_blocks; }
  TILEWIRE_HD constexpr int32_t total_chunks() const { return blocks.total_chunks() * col_blocks; }
  TILEWIRE_HD constexpr int32_t global(OwnedChunk c) const {
    return blocks.chunk_begin[c.owner.value] * col_blocks + c.chunk.value;
  }
  TILEWIRE_HD constexpr OwnedChunk at(int32_t global) const {
    const Rank owner = blocks.at(global / col_blocks).source;
    return {owner, Chunk{global - blocks.chunk_begin[owner.value] * col_blocks}};
  }
  // Of the chunks behind which there are no columns.
  TILEWIRE_HD constexpr int64_t last_cols() const {
    return cols == 0 ? 0 : cols - (cols - 1) / chunk_cols * chunk_cols;
  }
  // Of a chunk; the last ones may have fewer.
  TILEWIRE_HD constexpr int64_t chunk_rows() const {
    return dealt_row_blocks == 0 ? blocks.chunk_rows : dealt_chunk_rows;
  }
  // Of the whole matrix.
  TILEWIRE_HD constexpr RowRange rows(OwnedChunk c) const {
    if (dealt_row_blocks == 0) return blocks.rows({c.owner, Chunk{block_of(c).row}});
    const int64_t begin = global(c) % dealt_row_blocks * dealt_chunk_rows, end = begin + dealt_chunk_rows;
    return {begin, end < dealt_rows ? end : dealt_rows};
  }
  TILEWIRE_HD constexpr ColumnRange columns(OwnedChunk c) const {
    const int32_t block = dealt_row_blocks == 0 ? block_of(c).col : global(c) / dealt_row_blocks;
    const int64_t begin = block * chunk_cols, end = begin + chunk_cols;
    return {begin, end < cols ? end : cols};
  }
  struct Block {
    int32_t row;  // among those of the owner
    int32_t col;
  };
  // Of an owner's chunk: by bands of columns, in each by rows, in each row of blocks by columns.
  TILEWIRE_HD constexpr Block block_of(OwnedChunk c) const {
    const int32_t in_band = blocks.chunks_of(c.owner) * band_blocks;
    const int32_t first = c.chunk.value / in_band * band_blocks, number = c.chunk.value % in_band;
    const int32_t width = col_blocks - first < band_blocks ? col_blocks - first : band_blocks;
    return {number / width, first + number % width};
  }
  TILEWIRE_HD constexpr int32_t slots_of(Rank owner) const {
    return window < chunks_of(owner) ? window : chunks_of(owner);
  }
  TILEWIRE_HD constexpr int32_t slot(OwnedChunk c) const { return c.chunk.value % window; }
  // The number of a chunk among all that its rail partner on the own node takes.
  TILEWIRE_HD constexpr Chunk rail_number(OwnedChunk c) const {
    return Chunk{rail_chunk[c.owner.value] + c.chunk.value};
  }
  // Whether another chunk was in its slot before, and which.
  TILEWIRE_HD constexpr bool follows_in_slot(OwnedChunk c) const { return c.chunk.value >= window; }
  TILEWIRE_HD constexpr OwnedChunk before_in_slot(OwnedChunk c) const {
    return {c.owner, Chunk{c.chunk.value - window}};
  }
  // Whether another one comes behind it.
  TILEWIRE_HD constexpr bool frees_slot(OwnedChunk c) const {
    return int64_t{c.chunk.value} + window < chunks_of(c.owner);
  }
};

}  // namespace tilewire
