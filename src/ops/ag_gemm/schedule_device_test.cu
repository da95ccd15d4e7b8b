// The iterators of AllGather+GEMM compiled for the GPU. Where there is a GPU, one thread walks every role of every rank
// and must see what the host sees; elsewhere that it compiles is the test.
#include <cstdint>
#include <cstdio>
#include <string>

#include "ops/ag_gemm/plan.h"
#include "ops/ag_gemm/schedule.h"
#include "schedule/device_walk.cuh"
#include "schedule/topology_tables.h"

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

int run() {
  if (!has_gpu()) {
    std::puts("no GPU: compiled only");
    return kWalkSkipped;
  }
  const TopologyTables topology = TopologyTables::from_layout({3, 2});
  const Problem problem{.rows = {40, 0, 33, 7, 64}, .k = 40, .dtype = DataType::bf16, .cols = {50, 20}};
  const PlanChoice choice{
      .chunk_rows = 8, .tile_rows = 16, .tile_cols = 16, .raster_rows = 2, .workers = 3, .cursors = {}};
  for (int32_t r = 0; r < 5; ++r) {
    const PlanContext context{
        .topology = topology.view(),
        .me = Rank{r},
        .arena = {.flags = {.ranks = 5, .max_chunks = 64}, .half_stride_bytes = 1 << 20, .user_stride_bytes = 1 << 20},
        .machine = {}};
    const ScheduleTables tables(problem, choice, context);
    const Schedule s = tables.schedule(9);
    const std::string difference = walk_difference(s, on_device(s));
    if (!difference.empty()) {
      std::puts(difference.c_str());
      return 1;
    }
  }
  std::puts("the GPU walks as the host does");
  return 0;
}

}  // namespace
}  // namespace tilewire::ag_gemm

int main() { return tilewire::ag_gemm::run(); }
