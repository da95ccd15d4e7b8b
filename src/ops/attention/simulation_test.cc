// The protocol of ring attention in the simulator: random sequences of calls on
// one arena, every order for small cases, the smallest windows, and rules
// broken on purpose, which must be named.
#include "ops/attention/model.h"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <vector>

#include "ops/attention/random_calls.h"
#include "testing/judged_runs.h"
#include "testing/simulation_test_support.h"

namespace tilewire::attention {
namespace {

Problem problem(const std::vector<int64_t>& rows, int64_t kv_heads = 3) {
  return {.rows = rows, .kv_rows = rows, .batch = 1, .q_heads = 2 * kv_heads, .kv_heads = kv_heads, .head_dim = 64};
}

PlanChoice plan(bool is_step_major, int64_t window, int32_t workers = 2) {
  return {.is_step_major = is_step_major,
          .chunk_rows = 64,
          .window = window,
          .tile_rows = 40,
          .group_pairs = 2,
          .workers = workers,
          .cursors = {}};
}

TEST(AttentionSimulation, RandomSequencesOfFourCallsKeepEveryRule) {
  expect_random_sequences_keep_every_rule({&add_random_call}, 25);
}

TEST(AttentionSimulation, EveryOrderOfASmallCallKeepsEveryRule) {
  for (const Layout& layout : {Layout{2}, Layout{1, 1}}) {
    for (const bool is_step_major : {false, true}) {
      OpSimulation simulation = small_simulation(layout);
      simulation.add_call<RankModel>(problem({64, 64}, is_step_major ? 1 : 2), {plan(is_step_major, 1, 1)});
      expect_every_order_keeps_every_rule(simulation);
    }
  }
}

// A role that waited for what only its own later work brings would stand still
// with one slot, on some layout.
TEST(AttentionSimulation, TheSmallestWindowsSufficeOnAnyLayout) {
  const std::vector<Layout> layouts = {{2},    {4},    {1, 1, 1}, {2, 2}, {3, 1},       {1, 3},
                                       {2, 3}, {4, 1}, {1, 2, 3}, {3, 2}, {1, 4, 2, 1}, {2, 2, 2, 2}};
  for (const Layout& layout : layouts) {
    for (const bool is_step_major : {false, true}) {
      for (const int64_t window : {1, 2}) {
        OpSimulation simulation = small_simulation(layout);
        std::vector<int64_t> rows;
        for (int32_t r = 0; r < ranks_of(layout); ++r) rows.push_back(1 + (r * 37) % 80);
        simulation.add_call<RankModel>(problem(rows), {plan(is_step_major, window)});
        simulation.add_call<RankModel>(problem(rows), {plan(!is_step_major, window)});
        for (const uint64_t seed : {1, 2}) {
          const SimReport report = walk_sequence(simulation, seed);
          ASSERT_TRUE(report.ok()) << testing::PrintToString(layout) << " step-major " << is_step_major << " window "
                                   << window << "\n"
                                   << report.text();
        }
      }
    }
  }
}

// What is planned is walked by the same iterators, so that both agree; neither
// may be below what links and arithmetic take.
TEST(AttentionSimulation, ThePlannersNumbersAndTheSimulatorsDoNotContradictEachOther) {
  Problem causal = problem({256, 256, 256, 256});
  causal.is_causal = true;
  Problem zigzag = causal;
  zigzag.placement = Placement::zigzag;
  for (const Problem& p : {problem({256, 256, 256, 256}), problem({300, 0, 20, 90}), causal, zigzag}) {
    for (const double network_bytes_per_s : {4e9, 2e8}) {
      Machine machine;
      machine.network_bytes_per_s = network_bytes_per_s;
      for (const Layout& layout : {Layout{2, 2}, Layout{3, 1}}) {
        Judged<RankModel>(layout, p, machine, 2).expect_agreement(0.01);
      }
    }
  }
}

// ---- who takes an item
// ------------------------------------------------------------------------------------------------

// Items that go to any of the workers, each of which takes its own in their
// order, as those of a kernel do.
struct TakenItems {
  const int32_t* taker;  // [items] the worker
  int64_t items;
  int32_t worker;
  int64_t item = -1;

  int64_t first() {
    item = -1;
    return next();
  }
  int64_t next() {
    for (++item; item < items && taker[item] != worker;) ++item;
    return item;
  }
};

struct TakenSchedule : Schedule {
  const int32_t* taker = nullptr;
};

template <class Visit>
void for_each_role(const TakenSchedule& s, Cursors cursors, Visit&& visit) {
  for_each_role(static_cast<const Schedule&>(s), cursors, [&]<class Role>(const AgentPlace& place, const Role& role) {
    if constexpr (std::is_same_v<Role, ComputeRole>) {
      visit(place, ItemRole<TakenItems>(s, place.worker, {s.taker, s.items(), place.worker}));
    } else {
      visit(place, role);
    }
  });
}

struct TakenTables {
  ScheduleTables tables;
  std::vector<int32_t> taker;

  TakenTables(const Problem& problem, const PlanChoice& choice, const PlanContext& context)
      : tables(problem, choice, context) {
    static Dice dice(17);
    for (int64_t item = 0; item < tables.schedule(1).items(); ++item) {
      taker.push_back(static_cast<int32_t>(dice.below(choice.workers)));
    }
  }
  TakenSchedule schedule(Epoch epoch) const { return {tables.schedule(epoch), taker.data()}; }
};

struct TakenRankModel : RankModel {
  using Tables = TakenTables;
  using Schedule = TakenSchedule;
  TakenSchedule schedule;

  TakenRankModel(const TakenSchedule& s, const PlanChoice& choice, const Problem& problem)
      : RankModel(s, choice, problem), schedule(s) {}
};

// Otherwise a worker could wait with an item for what only another worker's
// item frees.
TEST(AttentionSimulation, WhoTakesAnItemIsFree) {
  for (const Layout& layout : {Layout{2, 2}, Layout{3, 1}, Layout{4}}) {
    for (const int64_t window : {0, 1, 2}) {
      for (uint64_t seed = 0; seed < 3; ++seed) {
        OpSimulation simulation = small_simulation(layout);
        for (int call = 0; call < 3; ++call) {
          std::vector<int64_t> rows;
          for (int32_t r = 0; r < ranks_of(layout); ++r) rows.push_back((r * 53 + call * 31) % 130);
          simulation.add_call<TakenRankModel>(problem(rows), {plan(false, window, 3)});
        }
        const SimReport report = walk_sequence(simulation, seed);
        ASSERT_TRUE(report.ok()) << report.text();
      }
    }
  }
}

// ---- planted faults
// -------------------------------------------------------------------------------------------------

OpSimulation three_calls(const Layout& layout, bool is_step_major, int64_t window = 1) {
  OpSimulation simulation = small_simulation(layout);
  for (int call = 0; call < 3; ++call) {
    const std::vector<int64_t> rows(static_cast<size_t>(ranks_of(layout)), 70 + call);
    simulation.add_call<RankModel>(problem(rows), {plan(is_step_major, window)});
  }
  return simulation;
}

// Keys that nobody looks at but their own rank: there is nothing to wait for
// but words.
OpSimulation unread_calls() {
  OpSimulation simulation = small_simulation({2, 2});
  for (int call = 0; call < 3; ++call) {
    Problem p = problem({64, 64, 64, 64});
    p.rows = {0, 0, 0, 30};
    p.q_heads = p.kv_heads;
    simulation.add_call<RankModel>(p, {plan(true, 1)});
  }
  return simulation;
}

TEST(AttentionSimulation, FaultsOfTheRolesThatAllOpsHaveAreNamed) {
  for (const Layout& layout : {Layout{2, 2}, Layout{3, 1}}) {
    for (const bool is_step_major : {false, true}) {
      expect_faults_of_call_roles_are_named(three_calls(layout, is_step_major));
    }
  }
  expect_missing_drain_is_named(unread_calls());
}

TEST(AttentionSimulation, ALostSignalOfAnyRoleIsNamed) {
  for (const bool is_step_major : {false, true}) {
    for (const char* role : {"load", "push", "forward", "send", "compute", "release"}) {
      expect_named(three_calls({2, 2}, is_step_major),
                   {.fault = SimFault::drop_signal, .role = role, .nth = std::string(role) == "compute" ? -1 : 1},
                   {ViolationKind::wait_without_signal, ViolationKind::cycle});
    }
  }
}

TEST(AttentionSimulation, ASignalBeforeItsDataIsNamed) {
  for (const bool is_step_major : {false, true}) {
    for (const char* role : {"load", "push", "forward"}) {
      expect_named(three_calls({2, 2}, is_step_major), {.fault = SimFault::early_signal, .role = role, .nth = -1},
                   {ViolationKind::read_too_early, ViolationKind::done_too_early, ViolationKind::overwritten,
                    ViolationKind::wrong_slot});
    }
  }
}

TEST(AttentionSimulation, AChunkInTheWrongSlotIsNamed) {
  for (const bool is_step_major : {false, true}) {
    for (const char* role : {"load", "push", "forward"}) {
      expect_named(three_calls({2, 2}, is_step_major), {.fault = SimFault::wrong_slot, .role = role, .nth = 1},
                   {ViolationKind::wrong_slot, ViolationKind::overwritten, ViolationKind::read_too_early,
                    ViolationKind::outside_half});
    }
  }
}

TEST(AttentionSimulation, ARoleThatDoesNotWaitForItsChunkOrItsSlotIsNamed) {
  for (const bool is_step_major : {false, true}) {
    for (const char* role : {"compute", "forward", "send", "push", "release"}) {
      expect_named(three_calls({2, 2}, is_step_major), {.fault = SimFault::drop_need, .role = role},
                   {ViolationKind::read_too_early, ViolationKind::record_unmatched, ViolationKind::overwritten,
                    ViolationKind::wrong_slot, ViolationKind::signal_without_wait});
    }
  }
}

// The words of credits alone: data would come into a slot that is still read.
TEST(AttentionSimulation, ASlotThatIsUsedAgainTooEarlyIsNamed) {
  for (const bool is_step_major : {false, true}) {
    // In step-major order a rank pushes into a slot that was used only where a
    // node has three.
    const OpSimulation simulation = three_calls({3, 3}, is_step_major);
    const FlagLayout flags = small_arena(6).flags;
    for (const char* role : {"push", "send", "forward"}) {
      // Who waits for whom, and for which unit, is the order's to say; some
      // rank does. So each word has a few walks first.
      bool is_named = false;
      for (const int32_t walks : {10, kWalks}) {
        for (int32_t number = 0; number < 12 && !is_named; ++number) {
          const uint32_t word = flags.chunk(kSlotFree, Rank{number / 2}, Chunk{number % 2});
          const PlantedFault fault{.fault = SimFault::drop_need, .role = role, .word = word};
          const SimReport report = hunt(simulation, fault, walks);
          is_named = report.has(ViolationKind::overwritten) || report.has(ViolationKind::wrong_slot) ||
                     report.has(ViolationKind::read_too_early);
        }
      }
      EXPECT_TRUE(is_named) << role << " step-major " << is_step_major;
    }
  }
}

}  // namespace
}  // namespace tilewire::attention
