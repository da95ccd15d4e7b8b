#include "schedule/simulator/shadow_memory.h"

#include <gtest/gtest.h>

#include <array>

namespace tilewire {
namespace {

ContentKey key(int32_t chunk, int32_t call = 0) { return content_key({0, Rank{1}, chunk, 0}, call); }

TEST(ShadowMemory, HoldsWhatWasWrittenAndNothingBeside) {
  ShadowMemory m;
  int32_t writer = -1;
  m.write({.begin = 100, .end = 200, .origin = 100, .content = key(1), .writer = 4});
  EXPECT_TRUE(m.holds(100, 200, key(1), 100, writer));
  EXPECT_EQ(writer, 4);
  EXPECT_TRUE(m.holds(150, 160, key(1), 100, writer));
  EXPECT_FALSE(m.holds(99, 200, key(1), 100, writer));
  EXPECT_FALSE(m.holds(100, 201, key(1), 100, writer));
  EXPECT_FALSE(m.holds(100, 200, key(2), 100, writer));
  EXPECT_FALSE(m.holds(100, 200, key(1, 2), 100, writer));
  EXPECT_FALSE(m.holds(100, 200, key(1), 84, writer)) << "the right chunk, shifted";
}

TEST(ShadowMemory, AWriteSplitsWhatItCovers) {
  ShadowMemory m;
  int32_t writer = 0;
  m.write({.begin = 0, .end = 300, .content = key(1)});
  m.write({.begin = 100, .end = 200, .origin = 100, .content = key(2)});
  EXPECT_TRUE(m.holds(0, 100, key(1), 0, writer));
  EXPECT_TRUE(m.holds(100, 200, key(2), 100, writer));
  EXPECT_TRUE(m.holds(200, 300, key(1), 0, writer));
  std::vector<Segment> parts;
  m.collect(50, 400, parts);
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[1].previous, key(1));
  EXPECT_EQ(parts[3].content, 0u);
}

// Against an array of one entry a byte.
TEST(ShadowMemory, AgreesWithAMapOfBytesOnRandomWrites) {
  ShadowMemory m;
  std::array<ContentKey, 256> bytes{};
  std::array<int64_t, 256> origins{};
  uint64_t state = 1;
  const auto roll = [&state](uint64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((state >> 33) % n);
  };
  for (int step = 0; step < 2000; ++step) {
    const int64_t begin = roll(250), end = begin + 1 + roll(static_cast<uint64_t>(255 - begin));
    const ContentKey content = key(static_cast<int32_t>(roll(5)));
    m.write({.begin = begin, .end = end, .origin = begin, .content = content});
    for (int64_t b = begin; b < end; ++b) {
      bytes[static_cast<size_t>(b)] = content;
      origins[static_cast<size_t>(b)] = begin;
    }
    std::vector<Segment> all;
    m.collect(0, 256, all);
    int64_t at = 0;
    for (const Segment& s : all) {
      ASSERT_EQ(s.begin, at);
      for (; at < s.end; ++at) {
        ASSERT_EQ(s.content, bytes[static_cast<size_t>(at)]) << "byte " << at << ", step " << step;
        ASSERT_EQ(s.origin, origins[static_cast<size_t>(at)]) << "byte " << at << ", step " << step;
      }
    }
    ASSERT_EQ(at, 256);
  }
}

}  // namespace
}  // namespace tilewire
