// When the chunks of a call are expected: the roles that move them walked on a clock, without words, tiles and checks.
#pragma once

#include <vector>

#include "ops/ag_gemm/schedule.h"
#include "schedule/machine.h"

namespace tilewire::ag_gemm {

// Seconds after the start of the call, [local rank][global number of the chunk]: when a role of that rank of `node` can
// use the chunk. Takes push, send and forward as they are; each direction of a port carries one transfer after the
// other, also where several ranks send to one. What the ranks of other nodes do to one another is left out, and so is
// waiting for call records. Of `s` the rank and the order of row blocks are not looked at.
std::vector<std::vector<double>> expected_arrivals_s(const Schedule& s, Node node, const Machine& machine);

// When the last rank of the node has all chunks.
double last_arrival_s(const std::vector<std::vector<double>>& arrivals_s);

}  // namespace tilewire::ag_gemm
