// What the fused kernel is given, all of it by value: one place for the kernel and for who launches it.
#pragma once

#include "device/comm/call_view.cuh"
#include "device/tile/deal.cuh"
#include "device/tile/tile_form.h"
#include "ops/ag_gemm/schedule.h"

#include <cuda.h>

#include <cstddef>

namespace tilewire::ag_gemm {

// The caller's shard. 16-byte aligned, as is the pitch; a row is read up to the next multiple of 16 bytes.
struct DeviceShard {
  const std::byte* data = nullptr;
  int64_t pitch_bytes = 0;
};

struct DeviceBias {
  const void* data[ColumnMap::kMaxWeights] = {};  // one value a column, null: none
  bool is_fp32 = false;                           // else of the type of the operands
};

struct FusedParameters {
  CUtensorMap gathered[2];  // by half
  CUtensorMap input;        // the caller's shard
  CUtensorMap b[ColumnMap::kMaxWeights];
  CUtensorMap d[ColumnMap::kMaxWeights];
  Schedule schedule;  // its tables lie in device memory
  CallView call;
  DeviceShard shard;
  DeviceBias bias;
  OutType out = OutType::as_operands;
  UnitCounter counter;
  int32_t stages_per_tile = 1;
  int32_t comm_ctas = 0;     // those that do not compute; a multiple of the cluster
  uint32_t pace_clocks = 0;  // of each copying warp beside the tiles, from one piece to the next
};

}  // namespace tilewire::ag_gemm
