// GEMM+ReduceScatter on a CPU rank: each role is a thread over host memory, the arithmetic is the executor's.
#pragma once

#include <tilewire/matrix.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "executor/call.h"
#include "executor/weighted_matmul.h"
#include "ops/gemm_rs/problem.h"
#include "ops/gemm_rs/schedule.h"

namespace tilewire::gemm_rs {

// The caller's memory for one call. All views have been checked against the problem.
struct HostOperands : MatmulOperands {
  std::optional<MatrixView> residual;  // [own rows, N], any strides and dtype
  MatrixView out;                      // [own rows, N], columns contiguous
  WireTypes wire;
  std::shared_ptr<std::vector<std::byte>> packed;  // behind `a`, where the caller's has no contiguous rows

  std::vector<MatrixView> written() const { return {out}; }
};

// Stands in for the arithmetic where a test or a benchmark wants to rule the time of a chunk: so many rows and columns.
using ChunkStandIn = std::function<void(int64_t rows, int64_t cols)>;

// The roles of one call over `schedule`; all arguments must live until the call is over.
Call::Program host_program(const Schedule& schedule, Cursors cursors, const HostOperands& operands,
                           const ChunkStandIn* stand_in = nullptr);

}  // namespace tilewire::gemm_rs
