// topk_ids as the caller gives them, and what a call takes of them. Host only.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/moe_dispatch/routing_tables.h"

namespace tilewire::moe_dispatch {

// [tokens, k] whole numbers of 32 or 64 bits, any strides.
struct CallerRoutes {
  const void* ids = nullptr;
  int64_t tokens = 0;
  int32_t top_k = 1;
  int64_t token_stride = 0;  // in elements
  int64_t slot_stride = 1;
  bool is_64_bit = false;

  // Looks at the memory once, though it may change meanwhile: what is checked is what was read.
  int64_t read(int64_t token, int32_t slot) const {
    const int64_t at = token * token_stride + slot * slot_stride;
    return is_64_bit ? static_cast<const volatile int64_t*>(ids)[at] : static_cast<const volatile int32_t*>(ids)[at];
  }
};

// The caller's memory is looked at once, before anything is sent, and never again: another thread may write to it. Places
// of rows, and so where a rank writes, follow from the copy. Its memory is used again by the next call.
class RouteCopy {
 public:
  // Throws Error(invalid_argument) that names the first number that is neither -1 nor one of `experts`.
  void take(const CallerRoutes& routes, int64_t experts);
  TokenRoutes view() const { return {ids_.data(), tokens_, top_k_}; }

 private:
  std::vector<int32_t> ids_;
  int64_t tokens_ = 0;
  int32_t top_k_ = 1;
};

}  // namespace tilewire::moe_dispatch
