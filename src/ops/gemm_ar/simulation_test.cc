// The protocol of GEMM+AllReduce in the simulator: random sequences of calls on one arena, every order for small cases,
// windows, and rules broken on purpose, which must be named. Both forms.
#include "ops/gemm_ar/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "ops/gemm_ar/random_calls.h"
#include "testing/judged_runs.h"
#include "testing/sanitized.h"
#include "testing/simulation_test_support.h"
#include "testing/taken_works.h"

namespace tilewire::gemm_ar {
namespace {

PlanChoice small_plan(bool is_one_shot, int64_t window = 0, Cursors cursors = {}, int32_t gather_behind = 1) {
  return {.is_one_shot = is_one_shot,
          .chunk_rows = 4,
          .chunk_cols = 8,
          .window = window,
          .workers = 2,
          .gather_behind = gather_behind,
          .cursors = cursors};
}

Problem problem(int64_t m, int64_t n = 20) { return {.m = m, .n = n, .k = 8}; }

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> kLayouts = {{1}, {2}, {2, 2}, {3, 1}, {1, 3}, {2, 3}, {1, 1, 2}, {1, 1, 1}};
  return kLayouts;
}

TEST(GemmArSimulation, RandomSequencesOfFourCallsKeepEveryRule) {
  expect_random_sequences_keep_every_rule({&OpRandomCalls<Op>::add}, 25);
}

// A chunk for each rank; with two nodes of one, all that crosses between them.
TEST(GemmArSimulation, EveryOrderOfASmallCallKeepsEveryRule) {
  for (const bool is_one_shot : {false, true}) {
    for (const Layout& layout : {Layout{2}, Layout{1, 1}}) {
      OpSimulation simulation = small_simulation(layout);
      PlanChoice choice = small_plan(is_one_shot);
      choice.workers = 1;
      simulation.add_call<RankModel>(problem(4, is_one_shot ? 8 : 16), {choice});
      expect_every_order_keeps_every_rule(simulation);
    }
  }
}

TEST(GemmArSimulation, MatricesWithoutElementsAndFewerChunksThanRanksAreCallsLikeOthers) {
  for (const Layout& layout : layouts()) {
    OpSimulation simulation = small_simulation(layout);
    for (const auto& [is_one_shot, window] : {std::pair{false, 0}, {false, 1}, {true, 0}}) {
      simulation.add_call<RankModel>(problem(0), {small_plan(is_one_shot, window)});
      simulation.add_call<RankModel>(problem(5, 0), {small_plan(is_one_shot, window)});
      simulation.add_call<RankModel>(problem(1, 3), {small_plan(is_one_shot, window)});
      simulation.add_call<RankModel>(problem(3, 20), {small_plan(is_one_shot, window)});
    }
    const SimReport report = run_random_seeds(simulation.program(), {}, 1, 20);
    EXPECT_TRUE(report.ok()) << testing::PrintToString(layout) << "\n" << report.text();
  }
}

// See GemmRsSimulation.
TEST(GemmArSimulation, WhoTakesAChunkIsFree) {
  for (const Layout& layout : {Layout{2, 2}, Layout{3, 1}, Layout{4}, Layout{1, 1}}) {
    for (const auto& [is_one_shot, window] : {std::pair{false, 0}, {false, 1}, {false, 5}, {true, 0}}) {
      OpSimulation simulation = small_simulation(layout);
      for (const int64_t rows : {13, 5, 22}) {
        PlanChoice choice = small_plan(is_one_shot, window);
        choice.workers = 3;
        simulation.add_call<TakenRankModel<RankModel, PartialSumRole, one_shot::ComputeRole>>(problem(rows), {choice});
      }
      for (uint64_t seed = 0; seed < 4; ++seed) {
        const SimReport report = walk_sequence(simulation, seed);
        EXPECT_TRUE(report.ok()) << testing::PrintToString(layout) << " window " << window << "\n" << report.text();
      }
    }
  }
}

// ---- windows, and how far behind results are sent ----

// Two calls; `change` as in OpSimulation::add_call.
OpSimulation two_calls(const Layout& layout, const PlanChoice& choice,
                       const std::function<void(Schedule&)>& change = {}) {
  OpSimulation simulation = small_simulation(layout);
  for (const int64_t rows : {13, 22}) simulation.add_call<RankModel>(problem(rows, 26), {choice}, {}, change);
  return simulation;
}

SimReport walk(const OpSimulation& simulation, bool is_strict, int32_t seeds = 20) {
  SimOptions options;
  options.has_strict_load_ahead = is_strict;
  return run_random_seeds(simulation.program(), options, 1, seeds);
}

TEST(GemmArSimulation, EveryWindowPassesOnEveryLayoutHoweverFarBehindResultsAreSent) {
  for (const Layout& layout : part_if_sanitized(layouts())) {
    for (const int64_t window : {0, 1, 2, 5}) {
      for (const int32_t behind : {0, 1, 3}) {
        for (const bool is_strict : {false, true}) {
          const OpSimulation simulation = two_calls(layout, small_plan(false, window, {2, 2}, behind));
          const SimReport report = walk(simulation, is_strict, 8);
          EXPECT_TRUE(report.ok()) << testing::PrintToString(layout) << " window " << window << " behind " << behind
                                   << "\n"
                                   << report.text();
        }
      }
    }
  }
}

TEST(GemmArSimulation, OneShotPassesOnEveryLayoutHoweverFarItsRolesWaitAhead) {
  for (const Layout& layout : part_if_sanitized(layouts())) {
    for (const int32_t ahead : {0, 2, 64}) {
      const SimReport report = walk(two_calls(layout, small_plan(true, 0, {ahead, 2})), true);
      EXPECT_TRUE(report.ok()) << testing::PrintToString(layout) << " ahead " << ahead << "\n" << report.text();
    }
  }
}

TEST(GemmArSimulation, WaitingFurtherAheadThanResultsAreSentBehindIsACycle) {
  for (const int32_t behind : {0, 1, 2}) {
    const auto walk_ahead = [&](int32_t ahead) {
      const PlanChoice choice = small_plan(false, 0, {64, 0}, behind);
      return walk(two_calls({1, 1}, choice, [&](Schedule& s) { s.finishes_ahead = ahead; }), true);
    };
    const SimReport fits = walk_ahead(behind);
    EXPECT_TRUE(fits.ok()) << fits.text();
    const SimReport report = walk_ahead(behind + 1);
    ASSERT_TRUE(report.has(ViolationKind::cycle)) << behind << "\n" << report.text();
    EXPECT_NE(report.text().find("result_arrived"), std::string::npos) << report.text();
  }
}

TEST(GemmArSimulation, AWindowLargerThanItsSlotsOverwrites) {
  for (const Layout& layout : {Layout{2}, Layout{1, 1}}) {
    const OpSimulation simulation =
        two_calls(layout, small_plan(false, 1), [](Schedule& s) { s.buffers.partial_slot_bytes = 0; });
    const SimReport report = walk(simulation, false, 50);
    EXPECT_TRUE(report.has(ViolationKind::overwritten) || report.has(ViolationKind::wrong_slot)) << report.text();
  }
}

// A rank whose results would be sent behind the words for their slots.
TEST(GemmArSimulation, ResultsAsFarBehindAsTheirWindowAreACycle) {
  for (const int64_t window : {1, 3}) {
    const auto walk_behind = [&](int64_t behind) {
      return walk(two_calls({2, 2}, small_plan(false, window),
                            [&](Schedule& s) { s.gather_behind = static_cast<int32_t>(behind); }),
                  false);
    };
    const SimReport fits = walk_behind(window - 1);
    EXPECT_TRUE(fits.ok()) << fits.text();
    const SimReport report = walk_behind(window);
    ASSERT_TRUE(report.has(ViolationKind::cycle)) << window << "\n" << report.text();
    EXPECT_NE(report.text().find("result_"), std::string::npos) << report.text();
  }
}

// ---- what the planner says and what the simulator says ----

TEST(GemmArSimulation, ThePlannersNumbersAndTheSimulatorsDoNotContradictEachOther) {
  struct Shape {
    Layout layout;
    Problem problem;
    int32_t workers;
  };
  const std::vector<Shape> shapes = {
      {{2, 2}, {.m = 512, .n = 2048, .k = 2048}, 1}, {{2, 2}, {.m = 2048, .n = 512, .k = 128}, 2},
      {{2, 2}, {.m = 20, .n = 64, .k = 64}, 1},      {{2, 2}, {.m = 1, .n = 4096, .k = 512}, 1},
      {{4}, {.m = 1024, .n = 1024, .k = 1024}, 2},   {{1}, {.m = 512, .n = 1024, .k = 4096}, 2},
      {{3, 1}, {.m = 649, .n = 250, .k = 1000}, 2},  {{1, 1, 2}, {.m = 256, .n = 1024, .k = 0}, 4}};
  for (const Shape& shape : shapes) {
    const Judged<RankModel> run(shape.layout, shape.problem, {}, shape.workers);
    run.expect_agreement(1e-9);
    for (const bool is_one_shot : {false, true}) {
      PlanChoice choice{.is_one_shot = is_one_shot, .chunk_rows = 256, .chunk_cols = 512, .cursors = {}};
      choice.workers = shape.workers;
      run.expect_agreement(choice, 1e-9);
    }
  }
}

// What the forms are for: latency where there is little, volume where there is much.
TEST(GemmArSimulation, OneShotIsFasterForFewRowsAndTwoShotsForMany) {
  for (const Layout& layout : {Layout{4}, Layout{2, 2}, Layout{2, 2, 2, 2}}) {
    for (const auto& [rows, is_one_shot] : {std::pair<int64_t, bool>{1, true}, {4, true}, {4096, false}}) {
      const Judged<RankModel> run(layout, {.m = rows, .n = 4096, .k = 256}, kH200Machine, 64);
      EXPECT_EQ(run.plan().choice.is_one_shot, is_one_shot)
          << testing::PrintToString(layout) << " " << rows << " rows\n"
          << run.plan().explain();
    }
  }
}

// The shared part is priced with other numbers than those of the call.
TEST(GemmArSimulation, NoPlanOfAGridIsMuchFasterThanThePlanners) {
  for (const Layout& layout : {Layout{4}, Layout{2, 2}}) {
    for (const auto& [m, k] : {std::pair<int64_t, int64_t>{1, 1024}, {8, 1024}, {64, 3584}, {1024, 512}}) {
      const Judged<RankModel> run(layout, {.m = m, .n = 8192, .k = k}, kH200Machine, kH200Workers);
      double best_s = 1;
      PlanChoice best;
      for (const bool is_one_shot : {false, true}) {
        for (const int64_t rows : {std::min<int64_t>(m, 32), std::min<int64_t>(m, 128), m}) {
          for (const int64_t cols : {256, 512, 1024, 2048}) {
            if ((m / rows) * (8192 / cols) > 32) continue;
            const PlanChoice choice{.is_one_shot = is_one_shot,
                                    .chunk_rows = rows,
                                    .chunk_cols = cols,
                                    .workers = kH200Workers,
                                    .reduce_workers = 16,
                                    .gather_behind = 1,
                                    .cursors = {}};
            const double seconds = run.plan(choice).predicted_s;
            if (seconds < best_s) best = choice;
            best_s = std::min(best_s, seconds);
          }
        }
      }
      EXPECT_LT(run.plan().predicted_s, 1.25 * best_s) << best.text() << "\n" << run.plan().explain();
    }
  }
}

TEST(GemmArSimulation, FusedIsFasterThanOneAfterTheOtherWhereBothTakeTime) {
  Machine machine;
  machine.network_bytes_per_s = 5e7;
  const Judged<RankModel> run({2, 2}, {.m = 2048, .n = 1024, .k = 256}, machine, 1);
  PlanChoice choice{.chunk_rows = 128, .chunk_cols = 256, .cursors = {}};
  const double fused_s = run.simulated_s(choice);
  choice.is_fused = false;
  const double unfused_s = run.simulated_s(choice);
  EXPECT_GT(unfused_s, 1.2 * fused_s);
  EXPECT_TRUE(run.plan().choice.is_fused);
}

// ---- planted faults -------------------------------------------------------------------------------------------------

OpSimulation three_calls(const Layout& layout, bool is_one_shot, int64_t window = 0) {
  OpSimulation simulation = small_simulation(layout);
  for (int64_t call = 0; call < 3; ++call) {
    simulation.add_call<RankModel>(problem(8 * ranks_of(layout) + call, 12), {small_plan(is_one_shot, window)});
  }
  return simulation;
}

TEST(GemmArSimulation, FaultsOfTheRolesThatAllOpsHaveAreNamed) {
  for (const bool is_one_shot : {false, true}) {
    expect_faults_of_call_roles_are_named(three_calls({2, 2}, is_one_shot));
    expect_faults_of_call_roles_are_named(three_calls({3, 1}, is_one_shot));
  }
}

// A plan that is not fused, on a rank that finishes nothing: nobody else waits for its words.
TEST(GemmArSimulation, AMissingDrainIsNamed) {
  OpSimulation simulation = small_simulation({2});
  PlanChoice choice = small_plan(false);
  choice.is_fused = false;
  for (int call = 0; call < 3; ++call) simulation.add_call<RankModel>(problem(4, 8), {choice});
  expect_missing_drain_is_named(std::move(simulation));
}

TEST(GemmArSimulation, ALostSignalOfAnyRoleIsNamed) {
  for (const char* role : {"compute", "reduce", "send", "finish", "forward"}) {
    expect_named(three_calls({2, 2}, false), {.fault = SimFault::drop_signal, .role = role, .rank = 1, .nth = 1},
                 {ViolationKind::wait_without_signal});
  }
  for (const char* role : {"compute", "reduce", "send", "forward"}) {
    expect_named(three_calls({2, 2}, true), {.fault = SimFault::drop_signal, .role = role, .rank = 1, .nth = 1},
                 {ViolationKind::wait_without_signal});
  }
}

TEST(GemmArSimulation, ASignalBeforeItsDataIsNamed) {
  for (const auto& [is_one_shot, role] : {std::pair{false, "compute"},
                                          {false, "reduce"},
                                          {false, "finish"},
                                          {false, "forward"},
                                          {true, "compute"},
                                          {true, "reduce"},
                                          {true, "forward"}}) {
    expect_named(three_calls({2, 2}, is_one_shot), {.fault = SimFault::early_signal, .role = role, .nth = -1},
                 {ViolationKind::read_too_early, ViolationKind::done_too_early});
  }
}

TEST(GemmArSimulation, AChunkInTheWrongSlotIsNamed) {
  for (const auto& [is_one_shot, role] : {std::pair{false, "compute"},
                                          {false, "reduce"},
                                          {false, "send"},
                                          {false, "finish"},
                                          {false, "forward"},
                                          {true, "compute"},
                                          {true, "reduce"},
                                          {true, "send"},
                                          {true, "forward"}}) {
    expect_named(three_calls({2, 2}, is_one_shot), {.fault = SimFault::wrong_slot, .role = role, .nth = 1},
                 {ViolationKind::wrong_slot, ViolationKind::overwritten, ViolationKind::read_too_early});
  }
}

TEST(GemmArSimulation, ARoleThatDoesNotWaitForWhatItUsesIsNamed) {
  for (const auto& [is_one_shot, role] : {std::pair{false, "reduce"},
                                          {false, "send"},
                                          {false, "finish"},
                                          {false, "forward"},
                                          {false, "collect"},
                                          {true, "reduce"},
                                          {true, "send"},
                                          {true, "forward"},
                                          {true, "finish"}}) {
    expect_named(three_calls({2, 2}, is_one_shot), {.fault = SimFault::drop_need, .role = role},
                 {ViolationKind::read_too_early, ViolationKind::record_unmatched, ViolationKind::signal_without_wait});
  }
}

TEST(GemmArSimulation, ARoleThatDoesNotWaitForASlotIsNamed) {
  const OpSimulation simulation = three_calls({2, 2}, false, 1);
  const FlagLayout& flags = simulation.program().arena.flags;
  const uint32_t slot = flags.chunk(kSlotFree, Rank{0}, Chunk{0}), sum = flags.chunk(kSumSlotFree, Rank{0}, Chunk{0});
  for (const auto& [role, word] : {std::pair{"compute", slot}, {"send", sum}}) {
    expect_named(simulation, {.fault = SimFault::drop_need, .role = role, .word = word},
                 {ViolationKind::overwritten, ViolationKind::wrong_slot, ViolationKind::signal_without_wait});
  }
}

// Two chunks an owner: rank 0 takes those of rank 2, then its own.
TEST(GemmArSimulation, ARoleThatDoesNotWaitForTheSlotOfAResultIsNamed) {
  OpSimulation simulation = small_simulation({2, 2});
  for (int call = 0; call < 3; ++call) simulation.add_call<RankModel>(problem(32, 8), {small_plan(false, 1)});
  const FlagLayout& flags = simulation.program().arena.flags;
  const uint32_t own = flags.chunk(kResultTaken, Rank{1}, Chunk{2}),
                 other = flags.chunk(kResultTaken, Rank{1}, Chunk{0}),
                 remote = flags.chunk(kResultSlotFree, Rank{2}, Chunk{0});
  for (const auto& [role, word] : {std::pair{"finish", own}, {"send", other}, {"send", remote}}) {
    expect_named(simulation, {.fault = SimFault::drop_need, .role = role, .rank = 0, .word = word},
                 {ViolationKind::overwritten, ViolationKind::wrong_slot, ViolationKind::signal_without_wait});
  }
}

}  // namespace
}  // namespace tilewire::gemm_ar
