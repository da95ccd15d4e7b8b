// Each rule is broken once, on purpose, and must be named. What is planted in one test is absent in the others, which
// are clean (random_run_test), so a name that comes here comes from the fault.
#include <gtest/gtest.h>

#include <deque>

#include "schedule/simulator/exhaustive_run.h"
#include "schedule/simulator/random_run.h"
#include "schedule/simulator/toy_ops.h"

namespace tilewire {
namespace {

constexpr int32_t kSeeds = 200;

// The first bad report of many seeds.
SimReport hunt(const Toy& toy, SimOptions options) {
  return run_random_seeds(toy.program, std::move(options), 1, kSeeds);
}

SimOptions with(PlantedFault fault) {
  SimOptions options;
  options.faults.push_back(std::move(fault));
  return options;
}

Toy ring_calls(const std::vector<int32_t>& layout, int calls = 3) {
  Toy toy(layout);
  for (int i = 0; i < calls; ++i) toy.add_ring_broadcast({.chunks = 3, .chunk_bytes = 64 + 32 * (i % 2)});
  return toy;
}

TEST(PlantedFaults, DroppedSignalIsNamed) {
  for (const auto& layout : std::vector<std::vector<int32_t>>{{3}, {1, 1, 1}}) {
    const Toy toy = ring_calls(layout);
    const SimReport report = hunt(toy, with({.fault = SimFault::drop_signal, .role = "forward", .rank = 0, .nth = 1}));
    ASSERT_TRUE(report.has(ViolationKind::wait_without_signal)) << report.text();
    EXPECT_NE(report.text().find("rank 0 forward[0], piece of work 1, was lost"), std::string::npos) << report.text();
  }
}

TEST(PlantedFaults, EarlySignalIsNamed) {
  const Toy toy = ring_calls({3});
  const SimReport report = hunt(toy, with({.fault = SimFault::early_signal, .role = "forward", .nth = -1}));
  EXPECT_TRUE(report.has(ViolationKind::read_too_early)) << report.text();
}

TEST(PlantedFaults, WrongSlotIsNamed) {
  for (const auto& layout : std::vector<std::vector<int32_t>>{{3}, {1, 1, 1}}) {
    const Toy toy = ring_calls(layout);
    const SimReport report = hunt(toy, with({.fault = SimFault::wrong_slot, .role = "forward", .rank = 0, .nth = 2}));
    EXPECT_TRUE(report.has(ViolationKind::wrong_slot)) << report.text();
  }
}

TEST(PlantedFaults, WrongOrderUnderAWindowIsACycle) {
  Toy toy({2});
  toy.add_window({.chunks = 4, .slots = 2, .window = 2, .is_reversed = true});
  const SimReport report = hunt(toy, {});
  ASSERT_TRUE(report.has(ViolationKind::cycle)) << report.text();
  EXPECT_NE(report.text().find("produce[0]"), std::string::npos);
  EXPECT_NE(report.text().find("consume[0]"), std::string::npos);
}

TEST(PlantedFaults, DoneNotPublishedIsNamed) {
  const Toy toy = ring_calls({1, 1, 1});
  const uint32_t done = toy.program.arena.flags.done(Rank{1});
  const SimReport report = hunt(toy, with({.fault = SimFault::drop_signal, .role = "done", .rank = 1, .word = done}));
  ASSERT_TRUE(report.has(ViolationKind::wait_without_signal)) << report.text();
  EXPECT_NE(report.text().find("done of rank 1"), std::string::npos) << report.text();
  EXPECT_NE(report.text().find("was lost"), std::string::npos) << report.text();
}

TEST(PlantedFaults, DeferredSignalThatIsNotFlushedIsNamed) {
  SimOptions options;
  options.flushes_before_wait = false;
  options.distance = SimDistance::plan;
  Toy window({2});
  window.add_window({.chunks = 6, .slots = 2, .window = 2, .cursors = {0, 2}});
  const SimReport report = run_random(window.program, options, 1);
  ASSERT_TRUE(report.has(ViolationKind::held_back)) << report.text();
  options.flushes_before_wait = true;
  EXPECT_TRUE(run_random(window.program, options, 1).ok());
}

TEST(PlantedFaults, WindowLargerThanItsSlotsOverwrites) {
  for (const auto& layout : std::vector<std::vector<int32_t>>{{2}, {1, 1}}) {
    Toy toy(layout);
    toy.add_window({.chunks = 6, .slots = 2, .window = 3});
    const SimReport report = hunt(toy, {});
    EXPECT_TRUE(report.has(ViolationKind::overwritten)) << report.text();
  }
}

TEST(PlantedFaults, WindowOneTooSmallIsACycleAndTheSmallestWindowPasses) {
  for (const auto& layout : std::vector<std::vector<int32_t>>{{2}, {1, 1}}) {
    Toy small(layout), enough(layout);
    small.add_window({.chunks = 6, .slots = 2, .window = 2, .span = 3});
    enough.add_window({.chunks = 6, .slots = 3, .window = 3, .span = 3});
    const SimReport report = hunt(small, {});
    ASSERT_TRUE(report.has(ViolationKind::cycle)) << report.text();
    EXPECT_NE(report.text().find("2 roles wait for each other"), std::string::npos) << report.text();
    EXPECT_TRUE(hunt(enough, {}).ok());
  }
}

TEST(PlantedFaults, HalvesPlacedByLayoutAreNamed) {
  Toy toy = ring_calls({1, 1, 1}, 4);
  for (size_t i = 0; i < toy.program.calls.size(); ++i) {
    // Half 1 right behind what this call needs of half 0.
    const int64_t need = toy.program.arena.data_offset() + 3 * (64 + 32 * static_cast<int64_t>(i % 2));
    toy.program.calls[i].move_halves(0, need);
  }
  const SimReport report = hunt(toy, {});
  EXPECT_TRUE(report.has(ViolationKind::outside_half)) << report.text();
}

TEST(PlantedFaults, DoneBeforeUnusedChunksIsNamed) {
  for (const auto& layout : std::vector<std::vector<int32_t>>{{3}, {1, 1, 1}}) {
    Toy toy(layout);
    for (int i = 0; i < 3; ++i) toy.add_ring_broadcast({.chunks = 4, .read_every = 2});
    EXPECT_TRUE(hunt(toy, {}).ok());
    // The last rank of the ring forwards nothing and reads every second chunk only.
    for (SimCall& call : toy.program.calls) call.remove("drain");
    const SimReport report = hunt(toy, {});
    EXPECT_TRUE(report.has(ViolationKind::done_too_early) || report.has(ViolationKind::signal_without_wait))
        << report.text();
    bool has_early_done = false;
    for (uint64_t seed = 1; seed < kSeeds && !has_early_done; ++seed) {
      has_early_done = run_random(toy.program, {}, seed).has(ViolationKind::done_too_early);
    }
    EXPECT_TRUE(has_early_done);
  }
}

TEST(PlantedFaults, DoneWithoutSentIsNamed) {
  const Toy toy = ring_calls({1, 1, 1}, 4);
  const SimReport report = hunt(toy, with({.fault = SimFault::drop_need, .role = "done", .word = FlagLayout::sent()}));
  ASSERT_TRUE(report.has(ViolationKind::done_too_early)) << report.text();
  EXPECT_NE(report.text().find("without sent("), std::string::npos) << report.text();
}

// A set that holds only the ranks which exchanged data: neither published to nor awaited of the others.
TEST(PlantedFaults, DoneSetPerOpIsNamed) {
  const Toy toy = ring_calls({1, 1, 1});
  const FlagLayout& flags = toy.program.arena.flags;
  SimOptions options;
  options.faults = {{.fault = SimFault::drop_need, .role = "await", .rank = 0, .word = flags.done(Rank{2})}};
  const SimReport report = hunt(toy, options);
  EXPECT_TRUE(report.has(ViolationKind::done_set)) << report.text();
}

// What such a set leads to: ranks 0 and 2 exchange nothing in this op and lose sight of each other.
TEST(PlantedFaults, ARankTwoCallsAheadIsNamed) {
  const Toy toy = ring_calls({1, 1, 1}, 4);
  const FlagLayout& flags = toy.program.arena.flags;
  SimOptions options;
  options.max_violations = 64;
  options.faults = {{.fault = SimFault::drop_need, .role = "await", .rank = 0, .word = flags.done(Rank{2})},
                    {.fault = SimFault::drop_need, .role = "done", .word = flags.begun(Rank{2})}};
  bool is_named = false;
  for (uint64_t seed = 1; seed < 2000 && !is_named; ++seed) {
    is_named = run_random(toy.program, options, seed).has(ViolationKind::two_ahead);
  }
  EXPECT_TRUE(is_named);
}

TEST(PlantedFaults, CallEndLeftOutIsNamed) {
  const Toy toy = ring_calls({1, 1, 1});
  // The last piece of work of "forward" is its call_end; ranks that send nothing have it as their only one.
  const SimReport report = hunt(toy, with({.fault = SimFault::drop_signal, .role = "forward", .rank = 2, .nth = 0}));
  EXPECT_TRUE(report.has(ViolationKind::missing_call_end)) << report.text();
}

TEST(PlantedFaults, SourceOverwrittenBeforeSentIsNamed) {
  Toy toy = ring_calls({1, 1, 1}, 5);
  SimOptions options;
  options.faults = {{.fault = SimFault::drop_need, .role = "done", .word = FlagLayout::sent()}};
  bool is_named = false;
  for (uint64_t seed = 1; seed < 2000 && !is_named; ++seed) {
    SimOptions o = options;
    o.max_violations = 64;
    is_named = run_random(toy.program, o, seed).has(ViolationKind::source_overwritten);
  }
  EXPECT_TRUE(is_named);
}

TEST(PlantedFaults, DataBeforeItsRecordIsNamed) {
  const Toy toy = ring_calls({1, 1, 1});
  const uint32_t begun = toy.program.arena.flags.begun(Rank{0});
  SimOptions options;
  for (const char* role : {"forward", "compute"}) {
    options.faults.push_back({.fault = SimFault::drop_need, .role = role, .rank = 1, .word = begun});
  }
  EXPECT_TRUE(hunt(toy, options).has(ViolationKind::record_unmatched));
}

TEST(PlantedFaults, ReadWithoutItsFlagIsNamed) {
  const Toy toy = ring_calls({3});
  const uint32_t word = toy.program.arena.flags.chunk(0, Rank{0}, Chunk{1});
  const SimReport report = hunt(toy, with({.fault = SimFault::drop_need, .role = "compute", .rank = 2, .word = word}));
  EXPECT_TRUE(report.has(ViolationKind::read_too_early)) << report.text();
}

TEST(PlantedFaults, SignalThatNobodyWaitsForIsNamed) {
  const Toy toy = ring_calls({3});
  const uint32_t word = toy.program.arena.flags.chunk(0, Rank{0}, Chunk{1});
  SimOptions options;
  for (const char* role : {"compute", "drain"}) {
    options.faults.push_back({.fault = SimFault::drop_need, .role = role, .rank = 2, .word = word});
  }
  bool is_named = false;
  for (uint64_t seed = 1; seed < kSeeds && !is_named; ++seed) {
    is_named = run_random(toy.program, options, seed).has(ViolationKind::signal_without_wait);
  }
  EXPECT_TRUE(is_named);
}

TEST(PlantedFaults, TilesMadeTwiceOrNotAtAllAreNamed) {
  Toy toy({1});
  SimCall& call = toy.add_ring_broadcast({.chunks = 3});
  call.set_tiles(Rank{0}, 4);
  EXPECT_TRUE(hunt(toy, {}).has(ViolationKind::tile_missing));
  call.set_tiles(Rank{0}, 2);
  EXPECT_TRUE(hunt(toy, {}).has(ViolationKind::tile_unknown));
  call.set_tiles(Rank{0}, 3);
  EXPECT_TRUE(hunt(toy, {}).ok());
}

// A ring broadcast in which rank 0 has one role more, which does one thing more in every call.
struct Intruder {
  explicit Intruder(const std::vector<int32_t>& layout, const ScriptPiece& piece, int32_t ring = -1)
      : toy(ring_calls(layout, 4)) {
    const bool is_own_ring = ring >= toy.program.rings;
    if (is_own_ring) toy.program.rings = ring + 1;
    for (size_t i = 0; i < toy.program.calls.size(); ++i) {
      SimCall& call = toy.program.calls[i];
      const Command end{.kind = CommandKind::call_end, .epoch = toy.program.epoch(static_cast<int32_t>(i))};
      ends.push_back({{.command = end}});
      scripts.push_back({piece});
      if (is_own_ring) scripts.back().push_back({.command = end});
      call.add(Rank{0}, {.role = "intruder", .ring = ring}, ScriptModel{&scripts.back()});
      if (is_own_ring) call.add(Rank{1}, {.role = "intruder", .ring = ring}, ScriptModel{&ends.back()});
    }
  }
  bool is_named(ViolationKind kind, SimOptions options = {}) const {
    options.max_violations = 1000;
    for (uint64_t seed = 1; seed < kSeeds; ++seed) {
      if (run_random(toy.program, options, seed).has(kind)) return true;
    }
    return false;
  }

  Toy toy;
  std::deque<Script> scripts, ends;
};

TEST(PlantedFaults, ATileMadeTwiceIsNamed) {
  EXPECT_TRUE(Intruder({2}, {.tile = 1}).is_named(ViolationKind::tile_twice));
}

TEST(PlantedFaults, AWordWithTwoWritersIsNamed) {
  const FlagLayout flags = ring_calls({2}).program.arena.flags;
  const Intruder intruder({2}, {.publishes = {{Rank{1}, flags.chunk(0, Rank{0}, Chunk{0})}}});
  EXPECT_TRUE(intruder.is_named(ViolationKind::signal_twice));
}

TEST(PlantedFaults, AStoreToAnotherNodeIsNamed) {
  const FlagLayout flags = ring_calls({1, 1}).program.arena.flags;
  const Intruder intruder({1, 1}, {.publishes = {{Rank{1}, flags.chunk(3, Rank{0}, Chunk{0})}}});
  EXPECT_TRUE(intruder.is_named(ViolationKind::bad_command));
}

// A signal over the network that the receiver does not wait for: nothing says that it landed before it is sent again.
ScriptPiece unheard_signal() {
  const FlagLayout flags = ring_calls({1, 1}).program.arena.flags;
  return {.command = Command{.kind = CommandKind::signal, .peer = Rank{1}, .word = flags.chunk(3, Rank{0}, Chunk{0})}};
}

TEST(PlantedFaults, TwoProducersOfARingAreNamed) {
  EXPECT_TRUE(Intruder({1, 1}, unheard_signal(), 1).is_named(ViolationKind::ring_misuse));
}

TEST(PlantedFaults, ANetworkWordWrittenAgainInFlightIsNamed) {
  SimOptions options;
  options.faults = {{.fault = SimFault::drop_need, .role = "done", .word = FlagLayout::sent()}};
  const Intruder intruder({1, 1}, unheard_signal(), 2);
  EXPECT_TRUE(intruder.is_named(ViolationKind::word_in_flight, options));
  EXPECT_FALSE(intruder.is_named(ViolationKind::word_went_back, options));
  options.publishes_maximum = false;
  EXPECT_TRUE(intruder.is_named(ViolationKind::word_went_back, options));
  EXPECT_TRUE(intruder.is_named(ViolationKind::not_at_rest, options));
}

TEST(PlantedFaults, ReportsCarryTheSeedThatFoundThem) {
  const Toy toy = ring_calls({3});
  const SimOptions options = with({.fault = SimFault::early_signal, .role = "forward", .nth = -1});
  const SimReport report = hunt(toy, options);
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.text().find("seed " + std::to_string(report.seed)), std::string::npos);
}

}  // namespace
}  // namespace tilewire
