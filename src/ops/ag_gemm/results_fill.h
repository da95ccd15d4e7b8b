// Results of an aborted call are NaN, so that nobody mistakes them.
#pragma once

#include "ops/ag_gemm/host_executor.h"

namespace tilewire::ag_gemm {

void fill_results_with_nan(const HostOperands& operands);

}  // namespace tilewire::ag_gemm
