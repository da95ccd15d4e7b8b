#include "memory/poison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <vector>

namespace tilewire {
namespace {

bool is_fp16_nan(uint16_t v) { return (v & 0x7C00) == 0x7C00 && (v & 0x03FF) != 0; }
bool is_bf16_nan(uint16_t v) { return (v & 0x7F80) == 0x7F80 && (v & 0x007F) != 0; }

TEST(Poison, IsNanInEveryElementTypeAndDiffersBetweenNearCalls) {
  std::set<uint16_t> seen;
  for (Epoch e = (Epoch{1} << 32) - 3; e < (Epoch{1} << 32) + 125; ++e) {
    const uint16_t pattern = poison_pattern(e);
    EXPECT_TRUE(is_fp16_nan(pattern)) << pattern;
    EXPECT_TRUE(is_bf16_nan(pattern)) << pattern;
    const uint32_t pair = pattern | (uint32_t{pattern} << 16);
    float value = 0;
    std::memcpy(&value, &pair, sizeof(value));
    EXPECT_TRUE(std::isnan(value));
    seen.insert(pattern);
  }
  EXPECT_EQ(seen.size(), 128u);
}

TEST(Poison, FillsTheRangeAndNothingBesideIt) {
  for (const int64_t bytes : {0, 1, 2, 7, 4096, 4097, 10001}) {
    for (const int64_t offset : {0, 1, 3}) {
      std::vector<uint8_t> memory(static_cast<size_t>(bytes + offset + 4), 0xAB);
      fill_poison(memory.data() + offset, bytes, 12);
      const uint16_t pattern = poison_pattern(12);
      for (int64_t i = 0; i < static_cast<int64_t>(memory.size()); ++i) {
        const bool inside = i >= offset && i < offset + bytes;
        const uint8_t expected = !inside ? 0xAB : static_cast<uint8_t>((i - offset) % 2 == 0 ? pattern : pattern >> 8);
        ASSERT_EQ(memory[static_cast<size_t>(i)], expected) << "byte " << i << " of " << bytes << " at " << offset;
      }
    }
  }
}

TEST(Poison, FindsTheOneElementThatWasNotWritten) {
  std::vector<uint16_t> memory(1000, 0x3F80);
  EXPECT_EQ(find_poison(memory.data(), 2000, 5), -1);
  fill_poison(&memory[777], 2, 5);
  EXPECT_EQ(find_poison(memory.data(), 2000, 5), 777);
  EXPECT_EQ(find_poison(memory.data(), 2000, 6), -1) << "the pattern of another call";
}

}  // namespace
}  // namespace tilewire
