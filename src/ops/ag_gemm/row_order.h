// The order of row blocks that follows from when the chunks of a call are expected at a rank (arrivals.h).
#pragma once

#include <cstdint>
#include <vector>

#include "ops/ag_gemm/schedule.h"

namespace tilewire::ag_gemm {

// All row blocks, by the arrival of the last chunk that each one needs; own chunks count as here from the start, ties
// go by number. `arrivals_s`: of the rank `s` is of, by global number of the chunk. `s.row_order` is not looked at.
std::vector<int32_t> expected_row_order(const Schedule& s, const std::vector<double>& arrivals_s);

}  // namespace tilewire::ag_gemm
