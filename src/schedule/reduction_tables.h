// The tables behind a ReductionMap, and what a reduction needs of memory and words. Host only.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/chunk_tables.h"
#include "schedule/reduction_map.h"

namespace tilewire {

// How a matrix is cut; equal on all ranks.
struct ReductionCut {
  std::vector<int64_t> rows;  // of each owner; or of the whole matrix, one number, where its chunks are dealt out
  int64_t cols = 0;
  int64_t chunk_rows = 1;
  int64_t chunk_cols = 1;
  int64_t window = 0;         // 0: a slot for every chunk
  int64_t band_blocks = 1;    // see ReductionMap
  int64_t own_behind = 0;     // rounds by which chunks of owners on the own node come behind those of others
  bool deals_chunks = false;  // to owners, as evenly as they go: no owner has rows of its own

  int64_t col_blocks() const;
  int64_t dealt_row_blocks() const;
  int64_t chunks() const;  // of the whole matrix; throws Error(resource) where they do not fit 64 bits
};

// The most that any rank needs, so equal on all ranks.
struct ReductionNeeds {
  int64_t partial_slots = 0;   // for partial sums, of all sources
  int64_t sent_slots = 0;      // for node sums that it sends
  int64_t received_slots = 0;  // for those that it receives
  int64_t rail_chunks = 0;     // that it takes partial sums for
};
// Throws Error(resource) where a number does not fit 64 bits.
ReductionNeeds reduction_needs(const Topology& topology, const ReductionCut& cut);

class ReductionTables {
 public:
  // Rows, columns and chunks have been checked: the chunks of all owners together are fewer than 2^31, and so are those
  // that are dealt out.
  ReductionTables(const Topology& topology, Rank me, const ReductionCut& cut);
  ReductionMap view() const;

 private:
  static ChunkTables blocks_of(const Topology& topology, const ReductionCut& cut);

  ChunkTables blocks_;
  std::vector<int32_t> rail_chunk_, rail_slot_, source_slots_;
  std::vector<int32_t> order_, rail_order_;
  ReductionMap map_;  // without its pointers
};

}  // namespace tilewire
