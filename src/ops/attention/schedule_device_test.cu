// The iterators of ring attention compiled for the GPU. Where there is a GPU, one thread walks every role of every rank
// and must see what the host sees; elsewhere that it compiles is the test.
#include <cstddef>
#include <cstdio>
#include <vector>

#include "ops/attention/plan.h"
#include "ops/attention/schedule.h"
#include "testing/schedule_walk.cuh"

namespace tilewire::attention {
namespace {

Schedule on_device(Schedule s) {
  const auto ranks = static_cast<size_t>(s.ranks()), blocks = static_cast<size_t>(s.blocks.total_chunks());
  const auto tiles = static_cast<size_t>(s.tiles);
  s.frame.topology = to_device(s.frame.topology);
  s.blocks.row_begin = to_device(s.blocks.row_begin, ranks + 1);
  s.blocks.chunk_begin = to_device(s.blocks.chunk_begin, ranks + 1);
  s.wanted = to_device(s.wanted, ranks * blocks);
  s.block_keys = to_device(s.block_keys, blocks);
  s.tile_spans = to_device(s.tile_spans, tiles);
  s.tile_blocks = to_device(s.tile_blocks, tiles * ranks);
  s.tile_order = to_device(s.tile_order, tiles);
  return s;
}

WalkOutcome run() {
  const Problem problem{.rows = {90, 0, 133, 7, 64},
                        .kv_rows = {64, 130, 0, 7, 64},
                        .batch = 1,
                        .q_heads = 6,
                        .kv_heads = 3,
                        .head_dim = 64,
                        .dtype = DataType::bf16,
                        .is_causal = true};
  std::vector<PlanChoice> choices;
  for (const bool is_step_major : {false, true}) {
    choices.push_back({.is_step_major = is_step_major,
                       .chunk_rows = 64,
                       .window = 2,
                       .tile_rows = 32,
                       .group_pairs = 2,
                       .workers = 3,
                       .cursors = {}});
  }
  return test_walks<ScheduleTables>(problem, choices, on_device);
}

}  // namespace
}  // namespace tilewire::attention

int main() {
  const tilewire::WalkOutcome outcome = tilewire::attention::run();
  std::puts(outcome.text.c_str());
  return outcome.status;
}
