#include "schedule/simulator/exhaustive_run.h"

#include <gtest/gtest.h>

#include "schedule/simulator/toy_ops.h"

namespace tilewire {
namespace {

constexpr int64_t kStates = 400000;

TEST(ExhaustiveRun, TwoRanksOfOneNodeAreCleanInAllOrders) {
  Toy toy({2});
  for (int i = 0; i < 2; ++i) toy.add_ring_broadcast({.chunks = 1});
  const SimReport report = run_exhaustive(toy.program, {}, kStates);
  EXPECT_TRUE(report.ok()) << report.text();
  EXPECT_TRUE(report.is_complete) << report.states;
  EXPECT_GT(report.states, 50);
}

TEST(ExhaustiveRun, TwoNodesAreCleanInAllOrders) {
  for (const SimNetwork network : {SimNetwork::ordered, SimNetwork::counted}) {
    Toy toy({1, 1});
    toy.add_ring_broadcast({.chunks = 1});
    SimOptions options;
    options.network = network;
    const SimReport report = run_exhaustive(toy.program, options, kStates);
    EXPECT_TRUE(report.ok()) << report.text();
    EXPECT_TRUE(report.is_complete) << report.states;
    EXPECT_GT(report.states, 50);
  }
}

TEST(ExhaustiveRun, FindsWhatOneOrderInManyShows) {
  Toy toy({2});
  toy.add_window({.chunks = 3, .slots = 2, .window = 3});
  const SimReport report = run_exhaustive(toy.program, {}, kStates);
  EXPECT_TRUE(report.has(ViolationKind::overwritten)) << report.text();
  Toy right({2});
  right.add_window({.chunks = 3, .slots = 2, .window = 2});
  const SimReport clean = run_exhaustive(right.program, {}, kStates);
  EXPECT_TRUE(clean.ok()) << clean.text();
  EXPECT_TRUE(clean.is_complete);
}

TEST(ExhaustiveRun, SaysWhenItHitsItsLimit) {
  Toy toy({2});
  toy.add_window({.chunks = 3, .slots = 2, .window = 2});
  EXPECT_FALSE(run_exhaustive(toy.program, {}, 10).is_complete);
}

}  // namespace
}  // namespace tilewire
