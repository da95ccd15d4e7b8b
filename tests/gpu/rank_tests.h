// The lives of a communicator that ranks of gpu_ranks_test have.
#pragma once

#include "rank_program.h"

namespace tilewire {

constexpr const char* kWirePid = "TEST_WIRE_PID";  // the variable by which ranks know the wire process

void test_life(Joined& joined);       // every shape, streams, graphs, a refusal by all, a timeline
void test_next_life(Joined& joined);  // one call
// Each of these ends with the communicator.
void test_mismatch(Joined& joined);
void test_orders(Joined& joined);
void test_refused(Joined& joined);
void test_absent(Joined& joined);  // its deadline is short
void test_killed(Joined& joined);  // the last rank
void test_wire_killed(Joined& joined);

}  // namespace tilewire
