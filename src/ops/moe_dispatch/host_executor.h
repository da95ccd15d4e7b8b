// MoE dispatch on a CPU rank: each role is a thread over host memory, the arithmetic is that of all ops.
#pragma once

#include <tilewire/matrix.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "executor/call.h"
#include "ops/moe_dispatch/caller_routes.h"
#include "ops/moe_dispatch/schedule.h"

namespace tilewire::moe_dispatch {

// Of all ranks, by rank.
struct CallCounts {
  std::vector<int64_t> rows;    // that they get
  std::vector<int64_t> tokens;  // that they bring
};

// The caller's memory for one call. All views have been checked against the problem.
struct HostOperands {
  MatrixView x;        // [own tokens, H]
  TokenRoutes routes;  // of the same tokens; a kernel takes given_routes
  CallerRoutes given_routes;
  std::vector<MatrixView> w;     // [H, I] of each own expert, in the order of their numbers
  MatrixView out;                // [rows or more, I], columns contiguous; rows behind those that come become zeros
  int32_t* origins = nullptr;    // [rows of out, 3]: whose token, which of that rank's, which of its experts; or -1
  int64_t* offsets = nullptr;    // [own experts + 1] rows of out before each expert's
  int64_t most_rows = 0;         // that any rank may get
  CallCounts* counts = nullptr;  // where all that is done is counting: what was counted
  int64_t counted_rows = -1;     // what an earlier call has counted for this rank; below 0: no such call

  std::vector<MatrixView> written() const { return {out}; }
};

// Stands in for the arithmetic where a test or a benchmark wants to rule the time of a tile.
using TileStandIn = std::function<void(const TileWork&)>;

// The roles of one call over `schedule`; all three must live until the call is over.
Call::Program host_program(const Schedule& schedule, Cursors cursors, const HostOperands& operands,
                           const TileStandIn* stand_in = nullptr);

}  // namespace tilewire::moe_dispatch
