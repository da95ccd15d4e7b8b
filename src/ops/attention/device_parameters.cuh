// What the fused kernel is given, all of it by value: one place for the kernel
// and for who launches it.
#pragma once

#include "device/comm/call_view.cuh"
#include "device/tile/deal.cuh"
#include "ops/attention/key_steps.h"
#include "ops/attention/schedule.h"

#include <cuda.h>

namespace tilewire::attention {

struct FusedParameters {
  // The caller's, by column, row, head and batch entry. The copying warps see
  // keys and values whole lines at a time.
  CUtensorMap q, k, v, o;
  CUtensorMap copied_k, copied_v;
  // What other ranks have sent, in each half: lines of a key or a value.
  CUtensorMap received[2];
  Schedule schedule;  // its tables lie in device memory
  KeySteps steps;
  CallView call;
  UnitCounter counter;        // of items, which CTAs take
  float* log_sums = nullptr;  // [batch * q heads, own rows]
  int64_t log_sum_pitch = 0;  // from one head to the next
  int32_t q_heads = 0;
  int32_t kv_heads = 0;
  int32_t line_bytes = 0;  // of a key, and of a value
  float scale = 1;
  uint32_t pace_clocks = 0;  // from one piece that a copying warp loads to the next, at least
};

// From the start of a half to the first line that the map of it has.
TILEWIRE_HD constexpr int64_t first_line_offset(const Schedule& s) { return s.buffers.own_offset(0); }

}  // namespace tilewire::attention
