// The iterators of AllGather+GEMM compiled for the GPU. Where there is a GPU, one thread walks every role of every rank
// and must see what the host sees; elsewhere that it compiles is the test.
#include <cstddef>
#include <cstdio>
#include <vector>

#include "ops/ag_gemm/plan.h"
#include "ops/ag_gemm/schedule.h"
#include "testing/schedule_walk.cuh"

namespace tilewire::ag_gemm {
namespace {

Schedule on_device(Schedule s) {
  const auto ranks = static_cast<size_t>(s.frame.topology.ranks);
  s.frame.topology = to_device(s.frame.topology);
  s.chunks.row_begin = to_device(s.chunks.row_begin, ranks + 1);
  s.chunks.chunk_begin = to_device(s.chunks.chunk_begin, ranks + 1);
  s.row_order = to_device(s.row_order, static_cast<size_t>(s.grid.row_blocks));
  return s;
}

WalkOutcome run() {
  const Problem problem{.rows = {40, 0, 33, 7, 64}, .k = 40, .dtype = DataType::bf16, .cols = {50, 20}};
  const PlanChoice choice{
      .chunk_rows = 8, .tile_rows = 16, .tile_cols = 16, .raster_rows = 2, .workers = 3, .cursors = {}};
  return test_walks<ScheduleTables>(problem, std::vector{choice}, on_device);
}

}  // namespace
}  // namespace tilewire::ag_gemm

int main() {
  const tilewire::WalkOutcome outcome = tilewire::ag_gemm::run();
  std::puts(outcome.text.c_str());
  return outcome.status;
}
