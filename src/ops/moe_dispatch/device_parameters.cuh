// What the fused kernel is given, all of it by value: one place for the kernel and for who launches it.
#pragma once

#include "device/comm/call_view.cuh"
#include "ops/moe_dispatch/device_routes.h"
#include "ops/moe_dispatch/schedule.h"

#include <cuda.h>

#include <cstddef>

namespace tilewire::moe_dispatch {

// The caller's tokens. 16-byte aligned, as is the pitch; a row is read up to the next multiple of 16 bytes.
struct DeviceTokens {
  const std::byte* data = nullptr;
  int64_t pitch_bytes = 0;
};

// y [rows, cols] and what is said of its rows; 16-byte aligned, as is the pitch.
struct DeviceResults {
  std::byte* out = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t pitch_bytes = 0;
  int32_t* origins = nullptr;  // as in HostOperands, as the next
  int64_t* offsets = nullptr;  // null where rows are counted alone
};

// Device memory of this rank alone that lasts from call to call.
struct DeviceScratch {
  int32_t* part_counts = nullptr;  // [rounds * parts][experts + nodes], see device_count.cuh
  // CTAs that have come to the end of a step; and the words that open what comes behind.
  uint64_t* counted = nullptr;
  uint64_t* counts_are_known = nullptr;
  uint64_t* placed = nullptr;
  uint64_t* places_are_known = nullptr;
  // How many parts of a work have been done in all calls.
  uint64_t* pushed = nullptr;     // [rounds][pieces][ranks of the node]
  uint64_t* packed = nullptr;     // [rounds][nodes][chunks]
  uint64_t* forwarded = nullptr;  // [rounds][ranks]
  uint64_t* taken = nullptr;      // [rounds]
  uint64_t* remarked = nullptr;   // the last call in which a route was found wrong
};

struct FusedParameters {
  CUtensorMap rows[2];  // those of all rounds in the window, by half
  CUtensorMap w;        // of the own experts
  Schedule schedule;    // its tables, and those of the routing, lie in device memory
  CallView call;
  DeviceTokens x;
  DeviceRoutes routes;
  DeviceResults results;
  DeviceScratch scratch;
  CallRemark* remarks = nullptr;
  int64_t most_rows = 0;  // that a rank may get
  int32_t stages_per_tile = 1;
};

}  // namespace tilewire::moe_dispatch
