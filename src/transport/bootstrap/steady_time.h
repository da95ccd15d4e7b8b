// Points in time for deadlines: monotone, unaffected by clock changes.
#pragma once

#include <algorithm>
#include <chrono>

namespace tilewire {

using SteadyTime = std::chrono::steady_clock::time_point;

inline SteadyTime steady_now() { return std::chrono::steady_clock::now(); }

// The point `duration` from now; a huge duration saturates instead of overflowing.
inline SteadyTime deadline_in(std::chrono::nanoseconds duration) {
  const SteadyTime now = steady_now();
  return now + std::min<std::chrono::nanoseconds>(duration, SteadyTime::max() - now);
}

}  // namespace tilewire
