// For tests of what goes by the clock, on machines that have other work: what is to come soon may come late there.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

namespace tilewire {

// Whether `is_there` becomes true. Half a minute is the end of it.
inline bool comes_true(const std::function<bool()>& is_there) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!is_there()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// For what holds only where the machine lets a test run on within `limit`: `attempt(limit)` tries it and says what was
// wrong, "" for nothing. What the machine got in the way of works with a longer limit; what is broken never does.
inline void expect_given_time(std::chrono::milliseconds limit,
                              const std::function<std::string(std::chrono::milliseconds limit)>& attempt) {
  std::string complaint;
  for (int tries = 0; tries < 6; ++tries, limit *= 2) {
    complaint = attempt(limit);
    if (complaint.empty()) return;
  }
  ADD_FAILURE() << complaint;
}

}  // namespace tilewire
