// Random delays that make rare interleavings common in tests: 0 to max_us before a step, by hash of seed, rank, role
// and step, so that a run can be repeated.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace tilewire {

class TestDelay {
 public:
  TestDelay() = default;  // off
  // `max_us` 0 is off.
  TestDelay(int64_t max_us, uint64_t seed, Rank rank, int32_t role);

  // Sleeps before step `step`; a compare when off.
  void delay(uint64_t step) const {
    if (max_us_ != 0) [[unlikely]] {
      sleep(step);
    }
  }
  // How long that is: in [0, max_us].
  int64_t delay_us(uint64_t step) const;

 private:
  void sleep(uint64_t step) const;

  int64_t max_us_ = 0;
  uint64_t key_ = 0;
};

}  // namespace tilewire
