// The last words of a wait that ran past its deadline, or of a rank that found another one in a different call: written
// by a kernel into pinned host memory, read by the host.
#pragma once

#include "base/ids.h"

#include <cstdint>

namespace tilewire {

enum class KernelFaultKind : int32_t {
  deadline,  // the word did not come in time
  mismatch,  // the record that came with the word is not that of this rank's call
  busy,      // two calls of one communicator run at once: their streams are not in order
};

// Numbers of words that no flag area has, in fault records: a CTA has finished, a command ring has room.
constexpr uint64_t kFinishedWord = uint64_t{1} << 32, kRingTailWord = uint64_t{2} << 32;

struct FaultRecord {
  static constexpr uint64_t kNone = 0, kComplete = 1;

  uint64_t state = kNone;  // the others are valid once it is kComplete; only the first fault of a call is written
  KernelFaultKind kind = KernelFaultKind::deadline;
  int32_t op = 0;
  int32_t rank = 0;
  int32_t role = 0;
  int32_t cta = 0;
  uint64_t word = 0;   // number of the flag in the flag area of the rank
  Epoch expected = 0;  // mismatch: of the two records that differ, what differs
  Epoch seen = 0;
  Epoch epoch = 0;  // of the call
};

}  // namespace tilewire
