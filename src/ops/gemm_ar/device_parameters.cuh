// What the fused kernel is given, all of it by value: one place for the kernel and for who launches it.
#pragma once

#include "device/comm/call_view.cuh"
#include "device/reduction/reduction_view.cuh"
#include "ops/gemm_ar/schedule.h"

#include <cuda.h>

namespace tilewire::gemm_ar {

// What the gather of results is given. Counters: as in ReductionView.
struct GatherView {
  WorkTable<SumWork> collect;
  WorkTable<MoveWork> forward;
  const int32_t* peers = nullptr;  // [ranks of the node - 1] ranks that get results of this one
  uint64_t* collected = nullptr;   // [chunks], by global number
  uint64_t* forwarded = nullptr;   // [works of forward], in its order
};

struct FusedParameters {
  CUtensorMap a, b;
  Schedule schedule;  // its tables lie in device memory
  CallView call;
  ReductionView reduction;
  GatherView gather;
  ResultView result;
  int32_t stages_per_tile = 1;
};

}  // namespace tilewire::gemm_ar
