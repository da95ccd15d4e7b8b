// The planner's closed-form cost of a call. The simulator walks the same roles piece by piece and is the finer judge;
// this one is cheap enough to price every candidate.
#pragma once

#include <cstdint>

#include "ops/ag_gemm/plan.h"

namespace tilewire::ag_gemm {

struct Cost {
  double compute_s = 0;        // alone
  double communication_s = 0;  // alone
  double total_s = 0;
};

// total = max(compute, communication) + fill where fused (fill: the last chunk's way and the tiles that wait for it),
// compute + communication where not.
Cost predict(const Problem& problem, const PlanChoice& choice, const PlanContext& context);

// What no schedule can hide of the communication with chunks of this size: the time on the busiest link plus the last
// chunk's forward, on the worst rank. Depends on agreed values only.
double exposed_communication_s(const Problem& problem, int64_t chunk_rows, const PlanContext& context);

}  // namespace tilewire::ag_gemm
