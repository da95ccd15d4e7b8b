// Calls of all operations that have a kernel, drawn at random, on one communicator: what ranks of gpu_ranks_test have.
#pragma once

#include <cstdint>

namespace tilewire {

class Joined;  // rank_program.h

// The variables that say how many calls and from which seed they are drawn: 400 and 1 unless given.
constexpr const char *kMixedCalls = "TEST_MIXED_CALLS", *kMixedSeed = "TEST_MIXED_SEED";
int64_t mixed_calls();

// Shapes of all operations in turn at random, by the planner's choice, not fused, and in the other form; eager on two
// streams, and as replays of graphs; each rank late in its own way. Every element of every result is compared.
void mix_calls(Joined& joined);

}  // namespace tilewire
