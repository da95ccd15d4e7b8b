// What the fused kernel does, written down for it. Host code.
#pragma once

#include "ops/gemm_rs/schedule.h"
#include "schedule/reduction_work_lists.h"

namespace tilewire::gemm_rs {

inline ReductionWorkLists work_lists(const Schedule& s, WorkSize size) {
  const int64_t first_row = s.map.blocks.row_begin[s.me().value];
  return reduction_work_lists<ComputeRole, ReduceRole, FinishRole>(s, size, [&](OwnedChunk chunk, SumWork& work) {
    work.row = static_cast<int32_t>(s.map.rows(chunk).begin - first_row);
  });
}

}  // namespace tilewire::gemm_rs
