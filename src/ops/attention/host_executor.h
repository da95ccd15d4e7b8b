// Ring attention on a CPU rank: each role is a thread over host memory.
#pragma once

#include <tilewire/matrix.h>
#include <tilewire/tensor.h>

#include <functional>
#include <vector>

#include "executor/call.h"
#include "ops/attention/schedule.h"

namespace tilewire::attention {

// The rows of one head of a batch entry.
MatrixView head_of(const HeadsView& t, int64_t batch, int64_t head);

// The caller's memory for one call. All views have been checked against the problem.
struct HostOperands {
  HeadsView q, k, v;
  float scale = 1;
  MatrixView out;         // [batch * own rows, q heads * head dim], columns contiguous
  MatrixView lse;         // [batch * q heads, own rows], likewise
  float* sums = nullptr;  // kept_sums() of the schedule

  std::vector<MatrixView> written() const { return {out, lse}; }
};

// How many numbers there have to be room for: in step-major order what there is of each item between two sources.
int64_t kept_sums(const Schedule& schedule, int64_t head_dim);

// Stands in for the arithmetic where a test or a benchmark wants to rule the time of an item.
using ItemStandIn = std::function<void(const ItemWork&)>;

// The roles of one call over `schedule`; all arguments must live until the call is over.
Call::Program host_program(const Schedule& schedule, Cursors cursors, const HostOperands& operands,
                           const ItemStandIn* stand_in = nullptr);

}  // namespace tilewire::attention
