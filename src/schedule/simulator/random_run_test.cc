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

}  // namespace
}  // namespace tilewire
