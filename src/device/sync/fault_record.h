// The last words of a wait that ran past its deadline: written by a kernel into pinned host memory, read by the host.
#pragma once

#include "base/ids.h"

#include <cstdint>

namespace tilewire {

struct FaultRecord {
  static constexpr uint64_t kNone = 0, kComplete = 1;

  uint64_t state = kNone;  // the others are valid once it is kComplete; only the first fault of a call is written
  int32_t op = 0;
  int32_t rank = 0;
  int32_t role = 0;
  int32_t cta = 0;
  uint64_t word = 0;  // number of the flag in the flag area of the rank
  Epoch expected = 0;
  Epoch seen = 0;
  Epoch epoch = 0;  // of the call
};

}  // namespace tilewire
