// The works of a reduction as a kernel has them in tables: tiles of partial sums, and chunks that are added up. Written
// down by reduction_work_lists() of the iterators that all ranks walk.
#pragma once

#include <cstdint>

#include "schedule/reduction_tiles.h"
#include "schedule/work_table.h"

namespace tilewire {

// What a cluster computes at once: a part of a chunk.
struct alignas(16) TileWork : TabledWork {
  struct Begin {
    int32_t begin = 0;
  };
  Begin rows, columns;                   // of the whole matrix
  int32_t chunk_row = 0, chunk_col = 0;  // where the chunk begins
  int32_t slot = 0;                      // of the partial sum, at whoever takes it
  int32_t map = 0;                       // of the slots at the first rank that takes it, see slot_map()
  int32_t takers = 1;                    // so many ranks of the node do
  int32_t works = 1;                     // of the chunk
  int32_t tile = 0;                      // number of the chunk, for traces
};

// A chunk whose slots at the own rank are added up.
struct alignas(16) SumWork : TabledWork {
  int32_t counter = 0;  // of the parts of it that are done: ReductionSchedule::sum_number()
  int32_t number = 0;   // for traces
  int32_t rows = 0, cols = 0;
  // Where slots lie in the own half, in wire units; those of a kind are behind each other.
  uint32_t partials = 0, partial_step = 0;   // the own node's partial sums, by rank
  uint32_t received = 0, received_step = 0;  // the other nodes' sums, by node
  // Where the sum goes, likewise: reduce to where it is sent from; finish as the op says, to peers' halves too.
  uint32_t to = 0, also_to = 0;
  int32_t row = 0, col = 0;  // in the result
};
// What came to the own rank and goes on to another one of the node, where it lies at the same place.
struct alignas(16) MoveWork : TabledWork {
  int32_t counter = 0;  // of the parts of it that are done
  int32_t number = 0;   // of the chunk, for traces, as its source
  int32_t source = 0;
  int32_t to = 0;  // rank
  uint32_t at = 0, units = 0;
};
static_assert(sizeof(TileWork) == 64 && sizeof(SumWork) == 64);

// Slots are seen through tensor maps: of each half, of each rank of the node one for chunks of whole columns and one for
// the last.
constexpr int32_t kSlotMaps = 2;
TILEWIRE_HD constexpr int32_t slot_map(int32_t local, bool is_last) { return local * kSlotMaps + (is_last ? 1 : 0); }

}  // namespace tilewire
