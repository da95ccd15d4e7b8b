// What the links of a cluster have to carry for one call: no order, no waits, only bytes. The time of no walk can be
// below it.
#pragma once

#include "schedule/machine.h"
#include "schedule/simulator/sim_program.h"

namespace tilewire {

// Seconds for which the busiest direction of any port is busy in the program's first call, by the data that its roles
// move. Call records are left out.
double busiest_link_s(const SimProgram& program, const Machine& machine);

}  // namespace tilewire
