// AllGather+GEMM on a CPU rank: each role is a thread over host memory, the arithmetic is the executor's.
#pragma once

#include <tilewire/matrix.h>

#include <functional>
#include <vector>

#include "executor/call.h"
#include "operands/weighted_matmul.h"
#include "ops/ag_gemm/schedule.h"

namespace tilewire::ag_gemm {

// The caller's memory for one call. All views have been checked against the problem.
struct HostOperands : MatmulOperands {
  std::vector<MatrixView> out;  // [total rows, N_w], columns contiguous
  MatrixView gathered;          // [total rows, K], columns contiguous; empty unless wanted

  std::vector<MatrixView> written() const;
};

// Stands in for the arithmetic where a test or a benchmark wants to rule the time of a tile.
using TileStandIn = std::function<void(const TileWork&)>;

// The roles of one call over `schedule`; both arguments must live until the call is over.
Call::Program host_program(const Schedule& schedule, Cursors cursors, const HostOperands& operands,
                           const TileStandIn* stand_in = nullptr);

}  // namespace tilewire::ag_gemm
