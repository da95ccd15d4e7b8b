// The planner's cost of a call: the roles that move chunks walked on a clock (arrivals.h), then the tiles of one rank
// behind them. The simulator walks all roles of all ranks, with every word; both take what a piece of work costs from
// the same functions.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/ag_gemm/schedule.h"
#include "planning/plan_parts.h"

namespace tilewire::ag_gemm {

// What a piece of the compute role's work costs, beside its step.
struct TileCost {
  double flops = 0;
  int64_t copied_bytes = 0;
};
inline TileCost tile_cost(const Schedule& s, const TileWork& w, int64_t k) {
  if (w.columns.is_gather_copy) return {.flops = 0, .copied_bytes = w.rows.rows() * s.buffers.pitch_bytes};
  return {.flops = gemm_tile_flops(w.rows.rows(), w.columns.end - w.columns.begin, k), .copied_bytes = 0};
}

// When the workers of a rank end: with all chunks here from the start, and with chunks as they arrive.
struct ComputeEnds {
  double alone_s = 0;
  double behind_s = 0;
};

// When what a tile waits for is there; `begun_s`: when the records of all ranks are.
double rows_ready_s(const Schedule& s, const TileWork& w, const std::vector<double>& arrivals_s, double begun_s);

// Of a rank whose workers end so. `gathered_s`: when the last of all ranks has all chunks. Compute alone: the worker of
// the rank with most to do. In total: from the begin of the call to its end, which waits for the peers.
Cost call_cost(const Schedule& s, const ComputeEnds& ends, double gathered_s, const Machine& machine);

// The same with the workers of CPU ranks. `arrivals_s`: of the chunks at the rank.
Cost predict(const Schedule& s, int64_t k, const std::vector<double>& arrivals_s, double gathered_s,
             const Machine& machine);

}  // namespace tilewire::ag_gemm
