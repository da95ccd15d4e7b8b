// What the fused kernel is given, all of it by value: one place for the kernel and for who launches it.
#pragma once

#include "device/comm/call_view.cuh"
#include "device/reduction/reduction_view.cuh"
#include "ops/gemm_ar/schedule.h"

#include <cuda.h>

namespace tilewire::gemm_ar {

// How many parts of a work have been done in all calls, in device memory of this rank alone: as in ReductionView.
struct GatherView {
  uint64_t* collected = nullptr;  // [chunks], by global number
  uint64_t* forwarded = nullptr;  // [works of forward], in its order
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
