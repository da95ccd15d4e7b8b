// The routes of a call on a GPU, as the caller gives them.
#pragma once

#include <cstdint>

namespace tilewire::moe_dispatch {

// topk_ids in device memory: [tokens, k] whole numbers of 32 or 64 bits, any strides.
struct DeviceRoutes {
  const void* ids = nullptr;
  int64_t token_stride = 0;  // in elements
  int64_t slot_stride = 1;
  bool is_64_bit = false;
  bool is_counted = false;  // by an earlier call, which has remarked what names no expert
};

}  // namespace tilewire::moe_dispatch
