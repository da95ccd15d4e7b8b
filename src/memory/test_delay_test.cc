#include "memory/test_delay.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <vector>

namespace tilewire {
namespace {

TEST(TestDelay, StaysInItsBoundsAndReachesThem) {
  const TestDelay delay(7, 1, Rank{2}, 3);
  std::set<int64_t> seen;
  for (uint64_t step = 0; step < 500; ++step) seen.insert(delay.delay_us(step));
  EXPECT_EQ(seen.size(), 8u);
  EXPECT_EQ(*seen.begin(), 0);
  EXPECT_EQ(*seen.rbegin(), 7);
}

TEST(TestDelay, RepeatsForOneSeedAndDiffersForEveryOtherInput) {
  const auto trace = [](uint64_t seed, int32_t rank, int32_t role) {
    const TestDelay delay(1000000, seed, Rank{rank}, role);
    std::vector<int64_t> steps;
    for (uint64_t step = 0; step < 8; ++step) steps.push_back(delay.delay_us(step));
    return steps;
  };
  EXPECT_EQ(trace(1, 2, 3), trace(1, 2, 3));
  EXPECT_NE(trace(1, 2, 3), trace(2, 2, 3));
  EXPECT_NE(trace(1, 2, 3), trace(1, 3, 3));
  EXPECT_NE(trace(1, 2, 3), trace(1, 2, 4));
  EXPECT_NE(trace(1, 2, 3), trace(1, 3, 2));
}

TEST(TestDelay, SleepsAsLongAsItSaysAndNotAtAllWhenOff) {
  using Clock = std::chrono::steady_clock;
  const TestDelay delay(20000, 1, Rank{0}, 0);
  uint64_t step = 0;
  while (delay.delay_us(step) < 10000) ++step;
  const auto begin = Clock::now();
  delay.delay(step);
  EXPECT_GE(Clock::now() - begin, std::chrono::microseconds(delay.delay_us(step)));
  EXPECT_EQ(TestDelay().delay_us(step), 0);
  EXPECT_EQ(TestDelay(0, 1, Rank{0}, 0).delay_us(step), 0);
}

}  // namespace
}  // namespace tilewire
