// A remark of a kernel: see call_remark.h.
#pragma once

#include "device/ptx/memory_order.cuh"
#include "device/sync/call_remark.h"

namespace tilewire {

// By one thread of the rank, the same way as a fault record is written. Nothing where one of its kind, of an earlier call, still
// stands.
TILEWIRE_DEVICE void leave_remark(CallRemark* remarks, const CallRemark& remark) {
  CallRemark* to = remarks + remark.kind;
  if (remarks == nullptr || ptx::load_acquire_sys(&to->state) != CallRemark::kNone) return;
  to->op = remark.op;
  to->kind = remark.kind;
  to->epoch = remark.epoch;
  for (int32_t i = 0; i < 3; ++i) to->numbers[i] = remark.numbers[i];
  ptx::store_release_sys(&to->state, CallRemark::kComplete);
}

}  // namespace tilewire
