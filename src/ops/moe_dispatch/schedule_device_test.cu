// The iterators of MoE dispatch compiled for the GPU. Where there is a GPU, one thread walks every role of every rank
// and must see what the host sees; elsewhere that it compiles is the test.
#include <cstddef>
#include <cstdio>
#include <vector>

#include "ops/moe_dispatch/sample_routing.h"
#include "ops/moe_dispatch/schedule.h"
#include "testing/schedule_walk.cuh"

namespace tilewire::moe_dispatch {
namespace {

Schedule on_device(Schedule s) {
  const auto ranks = static_cast<size_t>(s.ranks()), experts = static_cast<size_t>(s.experts.experts);
  Routing r = *s.routing;
  const auto rounds = static_cast<size_t>(r.rounds), own = static_cast<size_t>(s.own_experts());
  const auto nodes = static_cast<size_t>(s.topology().nodes), groups = static_cast<size_t>(r.groups);
  r.rounds_of = to_device(r.rounds_of, ranks);
  r.cells = to_device(r.cells, rounds * static_cast<size_t>(r.places) * ranks);
  r.piece_rows = to_device(r.piece_rows, rounds * static_cast<size_t>(s.width() * s.pieces) * ranks);
  r.staged = to_device(r.staged, rounds * ranks);
  r.node_tokens = to_device(r.node_tokens, rounds * nodes);
  r.node_begin = to_device(r.node_begin, rounds * nodes);
  r.group_begin = to_device(r.group_begin, rounds * (groups + 1));
  r.group_tile = to_device(r.group_tile, rounds * groups + 1);
  r.result_row = to_device(r.result_row, rounds * own * ranks);
  s.routing = to_device(&r, 1);
  s.experts.first = to_device(s.experts.first, ranks + 1);
  s.experts.place_of = to_device(s.experts.place_of, experts);
  s.experts.rank_of = to_device(s.experts.rank_of, experts);
  s.source_at = to_device(s.source_at, ranks);
  s.position_of = to_device(s.position_of, ranks);
  s.frame.topology = to_device(s.frame.topology);
  return s;
}

WalkOutcome run() {
  Problem problem{.rank_of_expert = {0, 1, 2, 3, 4, 0, 4, 1, 3, 3, 0}, .h = 40, .top_k = 3, .most_rows = 400};
  problem.most_tokens = problem.planned_tokens = 33;
  problem.cols = 50;
  const PlanChoice choice{.block_tokens = 6,
                          .window = 2,
                          .chunk_tokens = 4,
                          .pieces = 2,
                          .tile_rows = 4,
                          .tile_cols = 16,
                          .raster_rows = 2,
                          .workers = 3,
                          .cursors = {}};
  return test_walks<SampledTables>(problem, std::vector{choice}, on_device);
}

}  // namespace
}  // namespace tilewire::moe_dispatch

int main() {
  const tilewire::WalkOutcome outcome = tilewire::moe_dispatch::run();
  std::puts(outcome.text.c_str());
  return outcome.status;
}
