// What the fused kernel is given, all of it by value: one place for the kernel and for who launches it.
#pragma once

#include "device/comm/call_view.cuh"
#include "device/reduction/reduction_view.cuh"
#include "ops/gemm_rs/schedule.h"

#include <cuda.h>

namespace tilewire::gemm_rs {

struct FusedParameters {
  CUtensorMap a, b;
  Schedule schedule;  // its tables lie in device memory
  CallView call;
  ReductionView reduction;
  ResultView result;
  int32_t stages_per_tile = 1;
};

}  // namespace tilewire::gemm_rs
