// AllGather+GEMM on a CPU rank: each role is a thread over host memory, the arithmetic is the executor's.
#pragma once

#include <tilewire/matrix.h>

#include <functional>
#include <vector>

#include "executor/call.h"
#include "ops/ag_gemm/schedule.h"

namespace tilewire::ag_gemm {

// The caller's memory for one call. All views have been checked against the problem.
struct HostOperands {
  MatrixView a;                   // [own rows, K], any strides
  std::vector<MatrixView> b;      // [K, N_w], any strides
  std::vector<const void*> bias;  // [N_w] of bias_dtype, or nullptr
  DataType bias_dtype = DataType::fp32;
  std::vector<MatrixView> out;  // [total rows, N_w], columns contiguous
  MatrixView gathered;          // [total rows, K], columns contiguous; empty unless wanted
};

// Stands in for the arithmetic where a test or a benchmark wants to rule the time of a tile.
using TileStandIn = std::function<void(const TileWork&)>;

// The roles of one call over `schedule`; both arguments must live until the call is over.
Call::Program host_program(const Schedule& schedule, Cursors cursors, const HostOperands& operands,
                           const TileStandIn* stand_in = nullptr);

}  // namespace tilewire::ag_gemm
