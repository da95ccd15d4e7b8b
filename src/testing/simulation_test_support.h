// For tests of any op in the simulator: small arenas, random sequences of calls of any ops, every order of a small
// call, and rules broken on purpose. An op's test writes its problems and its planted faults.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "executor/op_call.h"
#include "planning/op_simulation.h"
#include "schedule/simulator/exhaustive_run.h"
#include "schedule/simulator/random_run.h"
#include "testing/sanitized.h"

namespace tilewire {

using Layout = std::vector<int32_t>;  // ranks of each node

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  // 0 .. n - 1
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool one_in(int64_t n) { return below(n) == 0; }
  template <class T>
  T pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(below(static_cast<int64_t>(from.size())))];
  }

 private:
  std::mt19937_64 random_;
};

// Calls of an op of random shapes, plans and options, for sequences in the simulator and for soaks on thread ranks.
// Each op specialises it in ops/<op>/random_calls.h, with
//   static void add(OpSimulation&, Dice&)              one more call, on the arena of small_arena()
//   static TestCall call(const Layout&, Dice&)         a call that OpTestTraits<Op>::Checker(call, rank) makes; its plan
//                                                      keeps to the options of test_options()
// Both with what is easily forgotten: zero rows, data that nobody reads, calls that move nothing, another plan on each
// rank where that may be.
template <class Op>
struct OpRandomCalls;

using AddRandomCall = void (*)(OpSimulation&, Dice&);
template <class... Op>
std::vector<AddRandomCall> random_calls_of(OpTypes<Op...>) {
  return {&OpRandomCalls<Op>::add...};
}

inline int32_t ranks_of(const Layout& layout) { return std::accumulate(layout.begin(), layout.end(), 0); }

inline ArenaLayout small_arena(int32_t ranks) {
  return {.flags = {.ranks = ranks, .max_chunks = 32}, .half_stride_bytes = 1 << 22, .user_stride_bytes = 1 << 20};
}

inline OpSimulation small_simulation(const Layout& layout, Epoch first_epoch = 2) {
  return {TopologyTables::from_layout(layout), small_arena(ranks_of(layout)), first_epoch};
}

// Four calls, each of one of the ops, one after the other on one arena. Narrow fields of epochs wrap in half of them.
inline OpSimulation random_sequence(const std::vector<AddRandomCall>& ops, const Layout& layout, Dice& dice) {
  constexpr int kCalls = 4;
  OpSimulation simulation = small_simulation(layout, dice.one_in(2) ? Epoch{2} : (Epoch{1} << 32) - 3);
  for (int call = 0; call < kCalls; ++call) dice.pick(ops)(simulation, dice);
  return simulation;
}

// Walked in `walks` random orders, as roles that wait ahead and work in one thread or as separate warps.
inline SimReport walk_sequence(const OpSimulation& simulation, uint64_t seed, int32_t walks = 4,
                               SimOptions options = {}) {
  options.has_strict_load_ahead = seed % 2 == 0;
  return run_random_seeds(simulation.program(), options, seed * 1000, walks);
}

inline void expect_random_sequences_keep_every_rule(const std::vector<AddRandomCall>& ops, uint64_t sequences) {
  const std::vector<Layout> layouts = {{1}, {2}, {2, 2}, {3, 1}, {1, 3}, {2, 3}, {1, 1, 2}, {1, 1, 1}};
  int64_t pieces = 0;
  for (uint64_t seed = 1; seed <= sequences; ++seed) {
    for (const Layout& layout : layouts) {
      Dice dice(seed);
      const SimReport report = walk_sequence(random_sequence(ops, layout, dice), seed);
      ASSERT_TRUE(report.ok()) << testing::PrintToString(layout) << " sequence " << seed << "\n" << report.text();
      pieces += report.pieces_of_work;
    }
  }
  EXPECT_GT(pieces, 0) << "nothing was walked";
}

// All orders up to equal states; with sanitizers, which ask what a walk does to memory, some.
inline void expect_every_order_keeps_every_rule(const OpSimulation& simulation, SimNetwork network) {
  constexpr int64_t kMostStates = kIsSanitized ? 5'000 : 2'000'000;
  SimOptions options;
  options.network = network;
  const SimReport report = run_exhaustive(simulation.program(), options, kMostStates);
  EXPECT_TRUE(report.ok()) << report.text();
  EXPECT_TRUE(report.is_complete || kIsSanitized);
  EXPECT_GT(report.states, 10);
}
// On both kinds of network, where there is one.
inline void expect_every_order_keeps_every_rule(const OpSimulation& simulation) {
  expect_every_order_keeps_every_rule(simulation, SimNetwork::counted);
  if (simulation.program().topology.view().nodes == 1) return;
  expect_every_order_keeps_every_rule(simulation, SimNetwork::ordered);
}

// ---- rules broken on purpose ----

constexpr int32_t kWalks = 300;
constexpr int32_t kCleanWalks = kIsSanitized ? 30 : kWalks;

inline SimReport hunt(const OpSimulation& simulation, PlantedFault fault, int32_t walks = kWalks) {
  SimOptions options;
  options.faults.push_back(std::move(fault));
  return run_random_seeds(simulation.program(), options, 1, walks);
}

// The fault is found, and by one of these names.
inline void expect_named(const OpSimulation& simulation, const PlantedFault& fault,
                         const std::vector<ViolationKind>& names) {
  const SimReport report = hunt(simulation, fault);
  bool is_named = false;
  for (const ViolationKind name : names) is_named = is_named || report.has(name);
  EXPECT_TRUE(is_named) << fault.role << "\n" << report.text();
}

// What every op has: it is clean without a fault, and the roles of call_roles.h are missed. `simulation`: three calls
// or more, all ranks on two nodes or more.
inline void expect_faults_of_call_roles_are_named(const OpSimulation& simulation) {
  const SimReport clean = run_random_seeds(simulation.program(), {}, 1, kCleanWalks);
  EXPECT_TRUE(clean.ok()) << clean.text();
  for (const char* role : {"begin", "done"}) {
    expect_named(simulation, {.fault = SimFault::drop_signal, .role = role, .rank = 1, .nth = 1},
                 {ViolationKind::wait_without_signal});
  }
  expect_named(simulation, {.fault = SimFault::drop_need, .role = "done", .word = FlagLayout::sent()},
               {ViolationKind::done_too_early, ViolationKind::word_in_flight});
}

// The op forgets its drain role. `simulation`: calls that send what no other role waits for.
inline void expect_missing_drain_is_named(OpSimulation simulation) {
  const SimReport clean = run_random_seeds(simulation.program(), {}, 1, kCleanWalks);
  EXPECT_TRUE(clean.ok()) << clean.text();
  for (SimCall& call : simulation.program().calls) call.remove("drain");
  const SimReport report = run_random_seeds(simulation.program(), {}, 1, kWalks);
  EXPECT_TRUE(report.has(ViolationKind::done_too_early) || report.has(ViolationKind::signal_without_wait))
      << report.text();
}

}  // namespace tilewire
