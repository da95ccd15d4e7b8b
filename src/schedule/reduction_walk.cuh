// The tables of a matrix that is summed over ranks on the GPU, for tests that walk its roles there.
#pragma once

#include <cstddef>

#include "schedule/device_walk.cuh"
#include "schedule/reduction_schedule.h"

namespace tilewire {

inline void to_device(ReductionSchedule& s) {
  const auto ranks = static_cast<size_t>(s.frame.topology.ranks);
  const auto width = static_cast<size_t>(s.width());
  s.frame.topology = to_device(s.frame.topology);
  ReductionMap& map = s.map;
  const auto chunks = static_cast<size_t>(map.total_chunks());
  map.blocks.row_begin = to_device(map.blocks.row_begin, ranks + 1);
  map.blocks.chunk_begin = to_device(map.blocks.chunk_begin, ranks + 1);
  map.rail_chunk = to_device(map.rail_chunk, ranks);
  map.rail_slot = to_device(map.rail_slot, ranks);
  map.source_slots = to_device(map.source_slots, width);
  map.order = to_device(map.order, chunks);
  map.rail_order = to_device(map.rail_order, static_cast<size_t>(map.rail_chunks));
}

}  // namespace tilewire
