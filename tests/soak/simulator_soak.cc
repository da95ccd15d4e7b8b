// Many random sequences of four calls of any ops on one arena, each walked by the simulator in several random orders:
// the ops of the list, and one more that shares their words and bytes.
#include <gtest/gtest.h>

#include <op_random_calls.h>

#include <cstdio>

#include "ops/op_list.h"
#include "soak/soak_run.h"
#include "testing/hand_over_op.h"
#include "testing/simulation_test_support.h"

namespace tilewire {
namespace {

struct Sequence {
  explicit Sequence(uint64_t seed) : dice(seed), layout(pick_layout(dice)), simulation(make(dice, layout)) {}

  static Layout pick_layout(Dice& dice) {
    Layout layout(static_cast<size_t>(1 + dice.below(4)));
    for (int32_t& ranks : layout) ranks = static_cast<int32_t>(1 + dice.below(3));
    return layout;
  }
  static OpSimulation make(Dice& dice, const Layout& layout) {
    std::vector<AddRandomCall> ops = random_calls_of(Ops{});
    ops.push_back(&hand_over::add_random_call);
    return random_sequence(ops, layout, dice);
  }

  Dice dice;
  Layout layout;
  OpSimulation simulation;
};

TEST(SimulatorSoak, RandomSequencesOfFourCallsKeepEveryRule) {
  SoakClock clock(soak_run().is_long ? 2000 : 40);
  int64_t pieces = 0;
  uint64_t seed = soak_run().seed;
  for (; clock.goes_on(); ++seed) {
    const Sequence sequence(seed);
    const SimReport report = walk_sequence(sequence.simulation, seed);
    ASSERT_TRUE(report.ok()) << "--seed=" << seed << ", layout " << testing::PrintToString(sequence.layout) << "\n"
                             << report.text();
    pieces += report.pieces_of_work;
  }
  EXPECT_GT(pieces, 0) << "nothing was walked";
  std::printf("%lld pieces of work in %llu sequences, seeds from %llu on\n", static_cast<long long>(pieces),
              static_cast<unsigned long long>(seed - soak_run().seed),
              static_cast<unsigned long long>(soak_run().seed));
}

// The soak would see a broken rule: one lost signal is found within as many sequences as the short run walks.
TEST(SimulatorSoak, ALostSignalIsFound) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Sequence sequence(seed);
    SimOptions options;
    options.faults.push_back({.fault = SimFault::drop_signal, .role = "done", .nth = -1});
    if (!walk_sequence(sequence.simulation, seed, 4, options).ok()) return;
  }
  FAIL() << "forty sequences without `done` were taken for right";
}

}  // namespace
}  // namespace tilewire
