// The iterators of GEMM+ReduceScatter compiled for the GPU. Where there is a GPU, one thread walks every role of every
// rank and must see what the host sees; elsewhere that it compiles is the test.
#include <cstdio>
#include <vector>

#include "ops/gemm_rs/plan.h"
#include "ops/gemm_rs/schedule.h"
#include "schedule/reduction_walk.cuh"
#include "testing/schedule_walk.cuh"

namespace tilewire::gemm_rs {
namespace {

Schedule on_device(Schedule s) {
  to_device(s);
  return s;
}

WalkOutcome run() {
  const Problem problem{.rows = {40, 0, 33, 7, 64}, .n = 50, .k = 40};
  const PlanChoice plain{.chunk_rows = 16, .chunk_cols = 24, .workers = 3, .reduce_workers = 2, .cursors = {}};
  PlanChoice windowed = plain;
  windowed.window = 2;
  return test_walks<ScheduleTables>(problem, std::vector{plain, windowed}, on_device);
}

}  // namespace
}  // namespace tilewire::gemm_rs

int main() {
  const tilewire::WalkOutcome outcome = tilewire::gemm_rs::run();
  std::puts(outcome.text.c_str());
  return outcome.status;
}
