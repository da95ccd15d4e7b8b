// The iterators of GEMM+ReduceScatter compiled for the GPU. Where there is a GPU, one thread walks every role of every
// rank and must see what the host sees; elsewhere that it compiles is the test.
#include <cstddef>
#include <cstdio>

#include "executor/schedule_walk.cuh"
#include "ops/gemm_rs/plan.h"
#include "ops/gemm_rs/schedule.h"

namespace tilewire::gemm_rs {
namespace {

Schedule on_device(Schedule s) {
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
  return s;
}

int run() {
  const Problem problem{.rows = {40, 0, 33, 7, 64}, .n = 50, .k = 40};
  for (const int64_t window : {0, 2}) {
    const PlanChoice choice{
        .chunk_rows = 16, .chunk_cols = 24, .window = window, .workers = 3, .reduce_workers = 2, .cursors = {}};
    const WalkOutcome outcome = walk_on_device<ScheduleTables>({3, 2}, problem, choice, on_device);
    std::puts(outcome.text.c_str());
    if (outcome.status != 0) return outcome.status;
  }
  return 0;
}

}  // namespace
}  // namespace tilewire::gemm_rs

int main() { return tilewire::gemm_rs::run(); }
