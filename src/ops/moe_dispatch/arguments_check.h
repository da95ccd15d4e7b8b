// What one rank can find wrong with the arguments of a call before anything is sent.
#pragma once

#include "ops/moe_dispatch/moe_dispatch.h"

namespace tilewire::moe_dispatch {

// The rank of each expert, on `ranks` ranks.
std::vector<int32_t> placement(const Arguments& arguments, int32_t ranks);

// Throws Error(invalid_argument) that names the argument, its values and the limit. `takes_routes`: they are in host memory,
// and a copy is made of them; a kernel reads them itself.
void check_arguments(const Arguments& arguments, Rank me, int32_t ranks, bool takes_routes);

// Asks for the results and checks them: shape, dtype, contiguous columns, no overlap with an input.
HostOperands make_operands(const Arguments& arguments, const Problem& problem);

}  // namespace tilewire::moe_dispatch
