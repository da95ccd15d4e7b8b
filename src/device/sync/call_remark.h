// What a kernel says of a call that has ended as calls do and has not done what it was asked for: written into pinned host
// memory, taken by the host. The communicator lives on.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace tilewire {

// There is one of each kind, so that none hides another one.
constexpr int32_t kRemarkKinds = 4;

struct CallRemark {
  static constexpr uint64_t kNone = 0, kComplete = 1, kTaken = 2;

  uint64_t state = kNone;  // the others are valid once it is kComplete; the first of a kind stays until the host has it
  int32_t op = 0;          // as in FaultRecord
  int32_t kind = 0;        // the op's own, below kRemarkKinds, as are the numbers
  Epoch epoch = 0;         // of the call
  int64_t numbers[3] = {};
};

}  // namespace tilewire
