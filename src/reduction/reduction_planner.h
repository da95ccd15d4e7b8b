// What planners of ops have in common that sum a matrix over ranks (see planning/planner.h): which chunks are tried, and
// what their products cost; what calls cost is in planning/walked_cost.h.
//
// Choice is the op's, with chunk_rows, chunk_cols and window; Model its model for the simulator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "planning/plan_parts.h"
#include "planning/walked_cost.h"
#include "schedule/reduction_roles.h"
#include "schedule/reduction_tables.h"
#include "schedule/simulator/reduction_model.h"

namespace tilewire {

// Chunks that are tried: the smaller they are the earlier the first one leaves, the larger the fewer signals. The last
// one is all that there is to cut, which is a choice where there are many ranks.
inline constexpr std::pair<int64_t, int64_t> kTriedChunks[] = {
    {16, 128}, {32, 256}, {64, 256}, {128, 256}, {256, 1024}, {int64_t{1} << 40, int64_t{1} << 40}};
inline constexpr int64_t kTriedWindow = 16;  // where not every chunk can have a slot
// What the shared part is priced with in place of numbers that may differ between ranks. A chunk is also what a worker
// computes at a time, so its size is not for communication alone to say.
inline constexpr int64_t kPricedDepth = 1024;
inline constexpr int32_t kPricedWorkers = 8;

inline constexpr const char* kUnfusedUnderWindow =
    "is_fused = false and window > 0: chunks under a window cannot all be made before any is added up";

// Choices like `first` but for their chunks, as far as sizes differ once they are cut to the matrix: `cut(choice)` gives
// the ReductionCut. With a slot for each chunk where `fits(choice)`.
template <class Choice, class CutOf, class Fits>
std::vector<Choice> tried_chunks(const Choice& first, const CutOf& cut_of, const Fits& fits) {
  std::vector<Choice> choices;
  for (const auto& [rows, cols] : kTriedChunks) {
    Choice choice = first;
    choice.chunk_rows = rows;
    choice.chunk_cols = cols;
    const ReductionCut cut = cut_of(choice);
    choice.chunk_rows = cut.chunk_rows;
    choice.chunk_cols = cut.chunk_cols;
    if (!fits(choice)) choice.window = kTriedWindow;
    const bool is_known =
        std::any_of(choices.begin(), choices.end(), [&](const Choice& c) { return c.agreed() == choice.agreed(); });
    if (!is_known) choices.push_back(choice);
  }
  return choices;
}

// How long the longest worker of a rank multiplies; Role is the op's for compute.
template <class Role, class Schedule>
double longest_product_s(const Schedule& s, int64_t k, const Machine& machine) {
  double longest_s = 0;
  for (int32_t worker = 0; worker < s.workers; ++worker) {
    double alone_s = 0;
    typename Role::Work w;
    for (Role role(s, worker); role.next(w);) {
      alone_s += machine.step_s + chunk_flops(s, w.chunk, k) / machine.worker_flops;
    }
    longest_s = std::max(longest_s, alone_s);
  }
  return longest_s;
}

}  // namespace tilewire
