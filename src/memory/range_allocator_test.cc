#include "memory/range_allocator.h"

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <random>

namespace tilewire {
namespace {

constexpr int64_t kGranule = RangeAllocator::kGranuleBytes;

TEST(RangeAllocator, AnEmptyAreaHasNoRoomEvenForNothing) {
  RangeAllocator area;
  EXPECT_FALSE(area.allocate(0, 1).has_value());
  EXPECT_EQ(area.size_for(0, 1), kGranule);
}

TEST(RangeAllocator, EmptyRangesDoNotShareAnOffset) {
  RangeAllocator area;
  area.grow(4 * kGranule);
  EXPECT_NE(*area.allocate(0, 1), *area.allocate(0, 1));
}

TEST(RangeAllocator, TakesTheFirstHoleThatFits) {
  RangeAllocator area;
  area.grow(8 * kGranule);
  const int64_t first = *area.allocate(2 * kGranule, 1);
  ASSERT_TRUE(area.allocate(kGranule, 1));
  EXPECT_TRUE(area.free(first));
  EXPECT_EQ(area.allocate(3 * kGranule, 1), 3 * kGranule);
  EXPECT_EQ(area.allocate(kGranule, 1), first);
}

TEST(RangeAllocator, JoinsNeighboursOnBothSidesWhenTheMiddleIsFreed) {
  RangeAllocator area;
  area.grow(3 * kGranule);
  const int64_t a = *area.allocate(1, 1);
  const int64_t b = *area.allocate(1, 1);
  const int64_t c = *area.allocate(1, 1);
  area.free(a);
  area.free(c);
  EXPECT_EQ(area.largest_free_bytes(), kGranule);
  area.free(b);
  EXPECT_EQ(area.largest_free_bytes(), 3 * kGranule);
}

TEST(RangeAllocator, GrowthJoinsTheFreeTail) {
  RangeAllocator area;
  area.grow(2 * kGranule);
  ASSERT_TRUE(area.allocate(kGranule, 1));
  area.grow(5 * kGranule);
  EXPECT_EQ(area.allocate(4 * kGranule, 1), kGranule);
}

TEST(RangeAllocator, RefusesASecondFreeAndAnOffsetInsideARange) {
  RangeAllocator area;
  area.grow(4 * kGranule);
  const int64_t at = *area.allocate(2 * kGranule, 1);
  EXPECT_FALSE(area.free(at + kGranule));
  EXPECT_TRUE(area.free(at));
  EXPECT_FALSE(area.free(at));
  EXPECT_EQ(area.used_bytes(), 0);
}

TEST(RangeAllocator, SizeForIsEnoughAndNotMoreThanNeeded) {
  RangeAllocator area;
  area.grow(3 * kGranule);
  ASSERT_TRUE(area.allocate(kGranule, 1));
  const int64_t size = area.size_for(4 * kGranule, 1024);
  RangeAllocator short_area = area;
  short_area.grow(size - kGranule);
  EXPECT_FALSE(short_area.allocate(4 * kGranule, 1024));
  area.grow(size);
  EXPECT_EQ(area.allocate(4 * kGranule, 1024), 1024);
}

// Random work against a map of what is out: no two ranges overlap, all are aligned, and nothing is lost in the end.
TEST(RangeAllocator, RandomUseNeverOverlapsAndLosesNothing) {
  std::mt19937 random(7);
  RangeAllocator area;
  area.grow(int64_t{1} << 20);
  std::map<int64_t, int64_t> out;
  for (int step = 0; step < 20000; ++step) {
    if (random() % 2 == 0 && !out.empty()) {
      const auto it = std::next(out.begin(), static_cast<int64_t>(random() % out.size()));
      ASSERT_TRUE(area.free(it->first));
      out.erase(it);
      continue;
    }
    const auto bytes = static_cast<int64_t>(random() % 40000);
    const int64_t alignment = int64_t{1} << (random() % 13);
    const auto at = area.allocate(bytes, alignment);
    if (!at) continue;
    ASSERT_EQ(*at % alignment, 0);
    ASSERT_LE(*at + bytes, area.size_bytes());
    const auto next = out.lower_bound(*at);
    ASSERT_TRUE(next == out.end() || *at + bytes <= next->first);
    ASSERT_TRUE(next == out.begin() || std::prev(next)->first + std::prev(next)->second <= *at);
    out[*at] = bytes;
  }
  for (const auto& [at, bytes] : out) ASSERT_TRUE(area.free(at));
  EXPECT_EQ(area.largest_free_bytes(), area.size_bytes());
}

}  // namespace
}  // namespace tilewire
