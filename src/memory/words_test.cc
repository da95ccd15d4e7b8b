#include "memory/words.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace tilewire {
namespace {

const ArenaLayout kLayout = {.flags = {.ranks = 2, .max_chunks = 8}};

class Words : public testing::Test {
 protected:
  std::byte* base() { return reinterpret_cast<std::byte*>(memory_.data()); }
  std::vector<uint64_t> memory_ = std::vector<uint64_t>(static_cast<size_t>(kLayout.flag_bytes()) / 8);
};

TEST_F(Words, NoWordTouchesAnotherOrTheControlPage) {
  for (uint32_t w = 0; w < kLayout.flags.words(); ++w) publish_word(base(), kLayout, w, 1000 + w);
  for (uint32_t w = 0; w < kLayout.flags.words(); ++w) EXPECT_EQ(load_word(base(), kLayout, w), 1000 + w);
  EXPECT_FALSE(is_aborted(base()));
  EXPECT_EQ(load_sent(base()), 0u);
  EXPECT_TRUE(std::all_of(base(), base() + ControlPage::kBytes, [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(Words, EpochsAreComparedOn64Bits) {
  const Epoch near32 = (Epoch{1} << 32) - 1;
  publish_word(base(), kLayout, 0, near32);
  EXPECT_FALSE(has_reached(base(), kLayout, 0, near32 + 1));
  publish_word(base(), kLayout, 0, near32 + 1);
  EXPECT_TRUE(has_reached(base(), kLayout, 0, near32));
  EXPECT_TRUE(has_reached(base(), kLayout, 0, near32 + 1));
}

TEST_F(Words, AnOlderControlWordDoesNotLowerOne) {
  publish_max(base(), kLayout, 1, 9);
  publish_max(base(), kLayout, 1, 8);
  EXPECT_EQ(load_word(base(), kLayout, 1), 9u);
}

TEST_F(Words, MaximumOfManyWritersIsNeverLost) {
  std::vector<std::thread> writers;
  for (int t = 0; t < 3; ++t) {
    writers.emplace_back([this, t] {
      for (Epoch e = 1; e <= 3000; ++e) publish_max(base(), kLayout, 1, 3 * e + static_cast<Epoch>(t));
    });
  }
  for (std::thread& t : writers) t.join();
  EXPECT_EQ(load_word(base(), kLayout, 1), 9002u);
}

TEST_F(Words, FirstReasonOfAnAbortStays) {
  raise_abort(base(), 7);
  raise_abort(base(), 8);
  EXPECT_TRUE(is_aborted(base()));
  EXPECT_EQ(abort_reason(base()), 7u);
}

// Under a race detector it also shows that the pair orders plain data.
TEST_F(Words, DataWrittenBeforeThePublishIsThereAfterTheConsume) {
  constexpr Epoch kRounds = 200;
  uint64_t data = 0;
  std::thread writer([&] {
    for (Epoch e = 1; e <= kRounds; ++e) {
      data = 3 * e;
      publish_word(base(), kLayout, 2, e);
      while (!has_reached(base(), kLayout, 3, e)) std::this_thread::yield();
    }
  });
  uint64_t wrong = 0;
  for (Epoch e = 1; e <= kRounds; ++e) {
    while (!has_reached(base(), kLayout, 2, e)) std::this_thread::yield();
    if (data != 3 * e) ++wrong;
    publish_word(base(), kLayout, 3, e);
  }
  writer.join();
  EXPECT_EQ(wrong, 0u);
}

TEST_F(Words, SentRings) {
  const Bell bell = arena_bell(base());
  const Sleeper sleeper(bell);
  publish_sent(base(), 4);
  EXPECT_EQ(load_sent(base()), 4u);
  EXPECT_EQ(*bell.rung, 1u);
}

TEST_F(Words, NobodyRingsWhenNobodySleeps) {
  publish_word(base(), kLayout, 0, 1);
  EXPECT_EQ(*arena_bell(base()).rung, 0u);
  { const Sleeper sleeper(arena_bell(base())); }
  publish_word(base(), kLayout, 0, 2);
  EXPECT_EQ(*arena_bell(base()).rung, 0u) << "a sleeper that left counts no more";
}

}  // namespace
}  // namespace tilewire
