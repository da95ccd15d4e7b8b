// The iterators of GEMM+AllReduce compiled for the GPU. Where there is a GPU, one thread walks every role of every rank and
// must see what the host sees; elsewhere that it compiles is the test.
#include <cstdio>

#include "ops/gemm_ar/plan.h"
#include "ops/gemm_ar/schedule.h"
#include "schedule/reduction_walk.cuh"
#include "testing/schedule_walk.cuh"

namespace tilewire::gemm_ar {
namespace {

Schedule on_device(Schedule s) {
  to_device(s);
  return s;
}

int run() {
  const Problem problem{.m = 49, .n = 50, .k = 40};
  for (const bool is_one_shot : {false, true}) {
    for (const int64_t window : {0, 2}) {
      if (is_one_shot && window > 0) continue;
      const PlanChoice choice{.is_one_shot = is_one_shot,
                              .chunk_rows = 16,
                              .chunk_cols = 24,
                              .window = window,
                              .workers = 3,
                              .reduce_workers = 2,
                              .cursors = {}};
      const WalkOutcome outcome = walk_on_device<ScheduleTables>({3, 2}, problem, choice, on_device);
      std::puts(outcome.text.c_str());
      if (outcome.status != 0) return outcome.status;
    }
  }
  return 0;
}

}  // namespace
}  // namespace tilewire::gemm_ar

int main() { return tilewire::gemm_ar::run(); }
