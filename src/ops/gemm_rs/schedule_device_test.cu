// The iterators of GEMM+ReduceScatter compiled for the GPU. Where there is a GPU, one thread walks every role of every
// rank and must see what the host sees; elsewhere that it compiles is the test.
#include <cstdio>

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
