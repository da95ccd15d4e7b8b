// A walk that picks each step at random. Some steps, and all steps of some ranks, are put off for long: completions and
// control words that come a call late, a rank that lags, data that lands last.
#pragma once

#include <cstdint>

#include "schedule/simulator/report.h"
#include "schedule/simulator/sim_options.h"
#include "schedule/simulator/sim_program.h"

namespace tilewire {

// The same seed walks the same way. The report carries the seed.
SimReport run_random(const SimProgram& program, const SimOptions& options, uint64_t seed);

// Seeds first, first + 1, ... until one is bad or `count` are walked. With the seed change the network (ordered or
// counted), the paths between ranks (one or two) and the cursor distances (of the plan, one, the maximum); the rest of
// the options stays. Returns the bad report or the sum of all.
SimReport run_random_seeds(const SimProgram& program, SimOptions options, uint64_t first, int32_t count);

}  // namespace tilewire
