// When the chunks of a call are expected at a rank, and the order of row blocks that follows.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/ag_gemm/schedule.h"
#include "schedule/machine.h"

namespace tilewire::ag_gemm {

// Seconds after the start of the call. Follows the order of the push, send and forward roles; links are busy with
// nothing else. `s.row_order` is not looked at.
double expected_arrival_s(const Schedule& s, ChunkRef chunk, const Machine& machine);

// All row blocks, by the expected arrival of the last chunk each one needs; own rows first, ties by number.
std::vector<int32_t> expected_row_order(const Schedule& s, const Machine& machine);

}  // namespace tilewire::ag_gemm
