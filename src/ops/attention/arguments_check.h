// What one rank can find wrong with the arguments of a call before anything is sent, and the operands that follow.
#pragma once

#include "ops/attention/attention.h"

namespace tilewire::attention {

// Throws Error(invalid_argument) that names the argument, its values and the limit.
void check_arguments(const Arguments& arguments, const Session& session);

// Asks for the results and checks them: shape, dtype, contiguous columns, no overlap with an input or each other.
HostOperands make_operands(const Arguments& arguments, const Problem& problem, Rank me);

}  // namespace tilewire::attention
