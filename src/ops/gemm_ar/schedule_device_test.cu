// The iterators of GEMM+AllReduce compiled for the GPU. Where there is a GPU, one thread walks every role of every rank and
// must see what the host sees; elsewhere that it compiles is the test.
#include <cstdio>
#include <vector>

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

WalkOutcome run() {
  const Problem problem{.m = 49, .n = 50, .k = 40};
  const PlanChoice plain{.chunk_rows = 16, .chunk_cols = 24, .workers = 3, .reduce_workers = 2, .cursors = {}};
  PlanChoice windowed = plain, one_shot = plain;
  windowed.window = 2;
  one_shot.is_one_shot = true;
  return test_walks<ScheduleTables>(problem, std::vector{plain, windowed, one_shot}, on_device);
}

}  // namespace
}  // namespace tilewire::gemm_ar

int main() {
  const tilewire::WalkOutcome outcome = tilewire::gemm_ar::run();
  std::puts(outcome.text.c_str());
  return outcome.status;
}
