#include "schedule/simulator/timed_run.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/simulator/toy_ops.h"

namespace tilewire {
namespace {

// Round numbers: 1 GB/s everywhere, 1 ms of arithmetic a tile of 1e6 flops, 10 us a network hop.
CostModel round_costs() {
  CostModel c;
  c.machine = {.worker_flops = 1e9,
               .copy_bytes_per_s = 1e9,
               .node_bytes_per_s = 1e9,
               .network_bytes_per_s = 1e9,
               .network_latency_s = 10e-6,
               .node_latency_s = 1e-6,
               .step_s = 0,
               .command_s = 0};
  c.keeps_trace = true;
  c.checks_rules = true;
  return c;
}

Toy ring(const std::vector<int32_t>& layout, int32_t chunks, int64_t chunk_bytes, int64_t half_bytes = 1 << 24) {
  Toy toy(layout, 2, half_bytes);
  toy.add_ring_broadcast({.chunks = chunks, .chunk_bytes = chunk_bytes});
  return toy;
}

TEST(TimedRun, OneRankTakesTheTimeOfItsTiles) {
  const Toy toy = ring({1}, 4, 16);
  const TimedReport r = run_timed(toy.program, round_costs());
  ASSERT_TRUE(r.rules.ok()) << r.rules.text();
  EXPECT_NEAR(r.seconds, 4e-3, 1e-5);
  EXPECT_NEAR(r.compute_busy_s, 4e-3, 1e-9);
}

TEST(TimedRun, AChunkCrossesTheNetworkInItsTimePlusTheLatency) {
  const Toy toy = ring({1, 1}, 1, 1 << 20);
  const TimedReport r = run_timed(toy.program, round_costs());
  ASSERT_TRUE(r.rules.ok()) << r.rules.text();
  // Made at rank 0 by a copy of 1 MiB at 1 GB/s, then 1 MiB on the wire, the hop, the tile, and the hop of done.
  const double mib_s = static_cast<double>(1 << 20) / 1e9;
  EXPECT_NEAR(r.seconds, 2 * mib_s + 10e-6 + 1e-3 + 10e-6, 5e-6);
  EXPECT_EQ(r.link_bytes[static_cast<size_t>(TraceLink::network)], (1 << 20) + 2 * 16);  // and two call records
}

TEST(TimedRun, TransfersOverlapComputeButNotEachOther) {
  CostModel costs = round_costs();
  costs.machine.worker_flops = 1e12;  // communication rules
  const Toy toy = ring({1, 1}, 8, 1 << 20);
  const double mib_s = static_cast<double>(1 << 20) / 1e9;
  EXPECT_NEAR(run_timed(toy.program, costs).seconds, 9 * mib_s, 1e-4);
  costs.machine.worker_flops = 1e8;  // compute rules: 10 ms a tile
  EXPECT_NEAR(run_timed(toy.program, costs).seconds, 80e-3 + 2 * mib_s, 1e-3);
}

// A reduction reads slots and writes their sum: it takes the time of all of them.
TEST(TimedRun, WhatAPieceOfWorkReadsAndWritesInItsRankAddsUp) {
  constexpr int64_t kBytes = 1 << 20;
  const double mib_s = static_cast<double>(kBytes) / 1e9;
  Toy toy({1}, 2, 1 << 24);
  SimCall& call = toy.add_ring_broadcast({.chunks = 2, .chunk_bytes = kBytes});
  const double base = run_timed(toy.program, round_costs()).seconds;
  const auto content = [](int32_t c) { return Content{0, Rank{0}, c, 0}; };
  Script reduce(1);
  for (int32_t c = 0; c < 2; ++c) {
    reduce[0].needs.push_back({toy.word(0, 0, c), 0});
    reduce[0].accesses.push_back({Access::Kind::read, toy.slot(Rank{0}, c, kBytes), {}, content(c)});
  }
  reduce[0].accesses.push_back({Access::Kind::write, {}, toy.slot(Rank{0}, 3, kBytes), content(3)});
  call.add(Rank{0}, {.role = "reduce"}, ScriptModel{&reduce});
  const TimedReport r = run_timed(toy.program, round_costs());
  ASSERT_TRUE(r.rules.ok()) << r.rules.text();
  // Both slots are made, a MiB each, while tiles of 1 ms are made behind them; then two are read and one is written.
  EXPECT_NEAR(base, mib_s + 2e-3, 1e-4);
  EXPECT_NEAR(r.seconds, 2 * mib_s + 3 * mib_s, 1e-4);
}

// Rank 0 makes a tile and stores 1 MiB of it into rank 1, which waits for it.
struct PushedTile {
  static constexpr int64_t kBytes = 1 << 20;
  Toy toy{{2}, 2, 1 << 24};
  Script push = Script(1), take = Script(1);

  PushedTile() {
    SimCall& call = toy.add_ring_broadcast({.chunks = 0});
    push[0] = hand_over(0);
    push[0].tile = 0;
    take[0].needs = {{toy.word(0, 0, 0), 0}};
    call.set_tiles(Rank{0}, 1);
    call.add(Rank{0}, {.role = "push"}, ScriptModel{&push});
    call.add(Rank{1}, {.role = "take"}, ScriptModel{&take});
  }
  ScriptPiece hand_over(int32_t chunk) const {
    return {.publishes = {{Rank{1}, toy.word(0, 0, chunk)}},
            .accesses = {{Access::Kind::write, {}, toy.slot(Rank{1}, chunk, kBytes), {0, Rank{0}, chunk, 0}}}};
  }
};

TEST(TimedRun, WhatATileHandsToAPeerLeavesWhenTheTileIsComputed) {
  const PushedTile pushed;
  const TimedReport r = run_timed(pushed.toy.program, round_costs());
  ASSERT_TRUE(r.rules.ok()) << r.rules.text();
  EXPECT_NEAR(r.seconds, 1e-3 + static_cast<double>(PushedTile::kBytes) / 1e9, 1e-4);
  EXPECT_NEAR(r.compute_busy_s, 1e-3, 1e-9);
}

TEST(TimedRun, ALinkIsFreeForOthersWhileWhatItShallCarryIsStillComputed) {
  PushedTile pushed;
  Script other = {pushed.hand_over(1)};
  pushed.take[0].needs.push_back({pushed.toy.word(0, 0, 1), 0});
  pushed.toy.program.calls[0].add(Rank{0}, {.role = "other"}, ScriptModel{&other});
  const TimedReport r = run_timed(pushed.toy.program, round_costs());
  ASSERT_TRUE(r.rules.ok()) << r.rules.text();
  EXPECT_NEAR(r.seconds, 2 * static_cast<double>(PushedTile::kBytes) / 1e9, 1e-4);
}

TEST(TimedRun, ASlowerNetworkIsSlowerAndMoreNicsDoNotAddBandwidth) {
  CostModel costs = round_costs();
  costs.machine.worker_flops = 1e12;
  const Toy toy = ring({1, 1}, 8, 1 << 20);
  const double base = run_timed(toy.program, costs).seconds;
  costs.nics = 2;
  EXPECT_NEAR(run_timed(toy.program, costs).seconds, base, 0.2 * base);
  costs.machine.network_bytes_per_s /= 4;
  EXPECT_GT(run_timed(toy.program, costs).seconds, 3 * base);
}

TEST(TimedRun, LinksInsideANodeAreNamedInTheTrace) {
  const Toy toy = ring({2}, 3, 4096);
  const TimedReport r = run_timed(toy.program, round_costs());
  const auto count = [&](const char* role, TraceLink link) {
    return std::count_if(r.trace.begin(), r.trace.end(),
                         [&](const TraceEvent& t) { return std::string(t.role) == role && t.link == link; });
  };
  EXPECT_EQ(count("forward", TraceLink::node), 3);
  EXPECT_EQ(count("own", TraceLink::copy), 3);
  EXPECT_EQ(count("compute", TraceLink::none), 6);
  for (const TraceEvent& t : r.trace) {
    EXPECT_LE(t.t_begin_ns, t.t_end_ns);
    EXPECT_GE(t.t_wait_ns, 0);
    EXPECT_LE(t.t_end_ns, static_cast<int64_t>(r.seconds * 1e9 + 1));
  }
}

TEST(TimedRun, AStandstillIsToldWithoutChecks) {
  Toy toy({2});
  toy.add_window({.chunks = 6, .slots = 2, .window = 2, .span = 3});
  CostModel costs = round_costs();
  costs.checks_rules = false;
  EXPECT_TRUE(run_timed(toy.program, costs).rules.has(ViolationKind::cycle));
}

}  // namespace
}  // namespace tilewire
