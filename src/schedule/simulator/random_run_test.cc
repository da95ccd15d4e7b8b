#include "schedule/simulator/random_run.h"

#include <gtest/gtest.h>

#include "schedule/simulator/toy_ops.h"

namespace tilewire {
namespace {

TEST(RandomRun, RingBroadcastIsCleanOnAnyLayout) {
  for (const auto& layout : std::vector<std::vector<int32_t>>{{1}, {3}, {1, 1, 1}, {2, 1}, {1, 2}}) {
    Toy toy(layout);
    for (int i = 0; i < 4; ++i) toy.add_ring_broadcast({.chunks = 3});
    const SimReport report = run_random_seeds(toy.program, {}, 1, 60);
    EXPECT_TRUE(report.ok()) << report.text();
    EXPECT_GT(report.pieces_of_work, 0);
  }
}

TEST(RandomRun, WindowIsCleanInsideANodeAndBetweenNodes) {
  for (const auto& layout : std::vector<std::vector<int32_t>>{{2}, {1, 1}}) {
    Toy toy(layout);
    for (int i = 0; i < 4; ++i) toy.add_window({.chunks = 6, .slots = 2, .window = 2});
    const SimReport report = run_random_seeds(toy.program, {}, 1, 60);
    EXPECT_TRUE(report.ok()) << report.text();
  }
}

// Four calls of random ops and shapes one after the other on one arena: layouts differ, some chunks are read by nobody,
// some calls move nothing.
Toy random_calls(uint64_t seed, Epoch first_epoch) {
  static const std::vector<std::vector<int32_t>> kLayouts{{2}, {3}, {1, 1}, {1, 1, 1}, {2, 1}, {1, 2}};
  const auto roll = [&seed](uint64_t n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int32_t>((seed >> 33) % n);
  };
  Toy toy(kLayouts[static_cast<size_t>(roll(kLayouts.size()))], first_epoch);
  for (int i = 0; i < 4; ++i) {
    const int64_t bytes = 16 * (1 + roll(12));
    if (roll(2) == 0) {
      toy.add_ring_broadcast(
          {.chunks = roll(6), .chunk_bytes = bytes, .read_every = 1 + roll(3), .cursors = {roll(3), roll(3)}});
    } else {
      const int32_t slots = 1 + roll(3);
      toy.add_window({.chunks = roll(8),
                      .slots = slots,
                      .window = slots,
                      .span = 1 + roll(static_cast<uint64_t>(slots)),
                      .chunk_bytes = bytes,
                      .cursors = {roll(3), roll(3)}});
    }
  }
  return toy;
}

TEST(RandomRun, SequencesOfOpsShareOneArena) {
  // Narrow fields wrap at 2^11 (immediates), 2^32 and 2^60.
  for (const Epoch first : {Epoch{2}, (Epoch{1} << 11) - 3, (Epoch{1} << 32) - 3}) {
    for (uint64_t seed = 1; seed <= 150; ++seed) {
      const Toy toy = random_calls(seed, first);
      const SimReport report = run_random_seeds(toy.program, {}, seed * 6, 6);
      ASSERT_TRUE(report.ok()) << report.text() << "\nsequence " << seed << " on " << toy.program.topology.describe();
    }
  }
}

TEST(RandomRun, SequencesOfOpsAreCaughtWhenHalvesFollowTheirLayout) {
  int32_t bad = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Toy toy = random_calls(seed, 2);
    for (size_t i = 0; i < toy.program.calls.size(); ++i) {
      toy.program.calls[i].move_halves(0, toy.program.arena.data_offset() + 64 * static_cast<int64_t>(i));
    }
    bad += run_random(toy.program, {}, seed).ok() ? 0 : 1;
  }
  EXPECT_GT(bad, 90);
}

TEST(RandomRun, OneSeedWalksOneWay) {
  const Toy toy = random_calls(7, 2);
  const SimReport a = run_random(toy.program, {}, 3), b = run_random(toy.program, {}, 3);
  EXPECT_EQ(a.events, b.events);
  EXPECT_EQ(a.messages, b.messages);
}

}  // namespace
}  // namespace tilewire
