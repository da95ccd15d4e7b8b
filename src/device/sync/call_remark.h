// What a kernel says of a call that has ended as calls do and has not done what it was asked for: written into pinned host
// memory, taken by the host. The communicator lives on.
#pragma once

#include <cstdint>

namespace tilewire {

struct CallRemark {
  static constexpr uint64_t kNone = 0, kComplete = 1, kTaken = 2;

  uint64_t state = kNone;  // the others are valid once it is kComplete; the first remark stays until the host has it
  int32_t op = 0;          // as in FaultRecord
  int32_t kind = 0;        // the op's own, as are the numbers
  int64_t numbers[3] = {};
};

}  // namespace tilewire
