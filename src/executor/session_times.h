// Options give times as seconds; waits want whole milliseconds, never less than asked.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>

namespace tilewire {

inline std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(std::ceil(seconds * 1e3)));
}

}  // namespace tilewire
