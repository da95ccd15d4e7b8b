// The protocol of GEMM+ReduceScatter in the simulator: random sequences of calls on one arena, every order for small
// cases, windows, and rules broken on purpose, which must be named.
#include "ops/gemm_rs/model.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "ops/gemm_rs/random_calls.h"
#include "testing/judged_runs.h"
#include "testing/sanitized.h"
#include "testing/simulation_test_support.h"
#include "testing/taken_works.h"

namespace tilewire::gemm_rs {
namespace {

PlanChoice small_plan(int64_t window = 0, Cursors cursors = {}) {
  return {.chunk_rows = 4, .chunk_cols = 8, .window = window, .workers = 2, .cursors = cursors};
}

Problem problem(std::vector<int64_t> rows, int64_t n = 20) { return {.rows = std::move(rows), .n = n, .k = 8}; }

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> kLayouts = {{1}, {2}, {2, 2}, {3, 1}, {1, 3}, {2, 3}, {1, 1, 2}, {1, 1, 1}};
  return kLayouts;
}

// Otherwise a worker could wait with a chunk for the slot of one that nobody has taken. Where roles wait ahead in one
// thread it could, so kernels wait for the next one in a warp of its own.
TEST(GemmRsSimulation, WhoTakesAChunkIsFree) {
  for (const Layout& layout : {Layout{2, 2}, Layout{3, 1}, Layout{4}, Layout{1, 1}}) {
    for (const auto& [window, own_behind] :
         {std::pair<int64_t, int64_t>{0, 0}, {0, 3}, {1, 0}, {2, 1}, {5, 0}, {5, 4}}) {
      OpSimulation simulation = small_simulation(layout);
      for (int64_t call = 0; call < 3; ++call) {
        std::vector<int64_t> rows;
        for (int64_t r = 0; r < ranks_of(layout); ++r) rows.push_back((r * 5 + call * 3) % 13);
        PlanChoice choice = small_plan(window);
        choice.workers = 3;
        choice.own_behind = own_behind;
        simulation.add_call<TakenRankModel<RankModel, ComputeRole>>(problem(rows), {choice});
      }
      for (uint64_t seed = 0; seed < 4; ++seed) {
        const SimReport report = walk_sequence(simulation, seed);
        EXPECT_TRUE(report.ok()) << testing::PrintToString(layout) << " window " << window << ", own " << own_behind
                                 << " behind\n"
                                 << report.text();
      }
    }
  }
}

// Two calls of uneven rows; `change` as in OpSimulation::add_call.
OpSimulation uneven_calls(const Layout& layout, const PlanChoice& choice,
                          const std::function<void(Schedule&)>& change = {}) {
  OpSimulation simulation = small_simulation(layout);
  for (int64_t call = 0; call < 2; ++call) {
    std::vector<int64_t> rows;
    for (int64_t r = 0; r < ranks_of(layout); ++r) rows.push_back((r * 5 + 7 * call + 2) % 14);
    simulation.add_call<RankModel>(problem(rows), {choice}, {}, change);
  }
  return simulation;
}

TEST(GemmRsSimulation, RandomSequencesOfFourCallsKeepEveryRule) {
  expect_random_sequences_keep_every_rule({&OpRandomCalls<Op>::add}, 25);
}

TEST(GemmRsSimulation, EveryOrderOfASmallCallKeepsEveryRule) {
  for (const Layout& layout : {Layout{2}, Layout{1, 1}}) {
    OpSimulation simulation = small_simulation(layout);
    PlanChoice choice = small_plan();
    choice.workers = 1;
    simulation.add_call<RankModel>(problem({4, 4}, 8), {choice});
    expect_every_order_keeps_every_rule(simulation);
  }
}

TEST(GemmRsSimulation, RanksWithoutRowsAndMatricesWithoutElementsAreCallsLikeOthers) {
  for (const Layout& layout : layouts()) {
    const auto ranks = static_cast<size_t>(ranks_of(layout));
    OpSimulation simulation = small_simulation(layout);
    std::vector<int64_t> last(ranks, 0), all(ranks, 5);
    last.back() = 9;
    for (const int64_t window : {0, 1}) {
      simulation.add_call<RankModel>(problem(last), {small_plan(window)});
      simulation.add_call<RankModel>(problem(std::vector<int64_t>(ranks, 0)), {small_plan(window)});
      simulation.add_call<RankModel>(problem(all, 0), {small_plan(window)});
    }
    const SimReport report = run_random_seeds(simulation.program(), {}, 1, 30);
    EXPECT_TRUE(report.ok()) << testing::PrintToString(layout) << "\n" << report.text();
  }
}

// ---- windows --------------------------------------------------------------------------------------------------------

TEST(GemmRsSimulation, TheSmallestWindowPassesOnEveryLayoutAndSoDoLargerOnes) {
  for (const Layout& layout : part_if_sanitized(layouts())) {
    for (const int64_t window : {1, 2, 3, 5}) {
      for (const bool is_strict : {false, true}) {
        SimOptions options;
        options.has_strict_load_ahead = is_strict;
        const OpSimulation simulation = uneven_calls(layout, small_plan(window, {2, 2}));
        const SimReport report = run_random_seeds(simulation.program(), options, 1, 30);
        EXPECT_TRUE(report.ok()) << testing::PrintToString(layout) << " window " << window << "\n" << report.text();
      }
    }
  }
}

// Roles that wait further ahead than the window lets them: it is one round too small for them.
TEST(GemmRsSimulation, AWindowOneSmallerThanItsRolesNeedIsACycle) {
  for (const Layout& layout : {Layout{2}, Layout{2, 2}}) {
    for (const int64_t window : {1, 2, 4}) {
      SimOptions options;
      options.has_strict_load_ahead = true;
      const auto simulate_ahead = [&](int32_t rounds) {
        const OpSimulation simulation = uneven_calls(layout, small_plan(window, {64, 0}), [&](Schedule& s) {
          s.map.ahead_rounds = rounds;
          s.map.fewest_in_round = s.topology().ranks;
          s.workers = 1;
        });
        return run_random_seeds(simulation.program(), options, 1, 30);
      };
      const SimReport fits = simulate_ahead(0);
      EXPECT_TRUE(fits.ok()) << fits.text();
      const SimReport report = simulate_ahead(static_cast<int32_t>(window));
      ASSERT_TRUE(report.has(ViolationKind::cycle)) << window << "\n" << report.text();
      const bool is_window = report.text().find("slot_free") != std::string::npos ||
                             report.text().find("chunk_finished") != std::string::npos;
      EXPECT_TRUE(is_window) << report.text();
    }
  }
}

// Own rows last over the whole matrix: the slots of the first owner are full while its rail partner waits for chunks
// that come behind all others'.
TEST(GemmRsSimulation, OwnersOneBehindTheOtherUnderAWindowAreACycle) {
  std::vector<std::vector<int32_t>> orders(2);
  OpSimulation simulation = small_simulation({2});
  simulation.add_call<RankModel>(problem({16, 16}, 8), {small_plan(1)}, {}, [&](Schedule& s) {
    std::vector<int32_t>& order = orders[static_cast<size_t>(s.me().value)];
    for (const int32_t owner : {1 - s.me().value, s.me().value}) {
      for (int32_t c = 0; c < 4; ++c) order.push_back(s.map.global({Rank{owner}, Chunk{c}}));
    }
    s.map.order = order.data();
    s.workers = 1;
  });
  const SimReport report = run_random_seeds(simulation.program(), {}, 1, 30);
  ASSERT_TRUE(report.has(ViolationKind::cycle)) << report.text();
}

TEST(GemmRsSimulation, AWindowLargerThanItsSlotsOverwrites) {
  for (const Layout& layout : {Layout{2}, Layout{1, 1}}) {
    const OpSimulation simulation =
        uneven_calls(layout, small_plan(1), [](Schedule& s) { s.buffers.partial_slot_bytes = 0; });
    const SimReport report = run_random_seeds(simulation.program(), {}, 1, 50);
    EXPECT_TRUE(report.has(ViolationKind::overwritten) || report.has(ViolationKind::wrong_slot)) << report.text();
  }
}

// ---- what the planner says and what the simulator says ----

TEST(GemmRsSimulation, ThePlannersNumbersAndTheSimulatorsDoNotContradictEachOther) {
  struct Shape {
    Layout layout;
    std::vector<int64_t> rows;
    int64_t n, k;
    int32_t workers;
  };
  const std::vector<Shape> shapes = {{{2, 2}, {128, 128, 128, 128}, 2048, 2048, 1},
                                     {{2, 2}, {512, 512, 512, 512}, 512, 128, 2},
                                     {{2, 2}, {5, 5, 5, 5}, 64, 64, 1},
                                     {{4}, {256, 256, 256, 256}, 1024, 1024, 2},
                                     {{1}, {512}, 1024, 4096, 2},
                                     {{3, 1}, {100, 0, 37, 512}, 250, 1000, 2},
                                     {{1, 1, 2}, {64, 64, 64, 64}, 1024, 0, 4}};
  for (const Shape& shape : shapes) {
    const Judged<RankModel> run(shape.layout, {.rows = shape.rows, .n = shape.n, .k = shape.k}, {}, shape.workers);
    run.expect_agreement(1e-9);
  }
}

// What fusion is for: most of the way of the data lies under the product.
TEST(GemmRsSimulation, FusedIsFasterThanOneAfterTheOtherWhereBothTakeTime) {
  Machine machine;
  machine.network_bytes_per_s = 2.5e7;
  const Judged<RankModel> run({2, 2}, {.rows = {512, 512, 512, 512}, .n = 1024, .k = 256}, machine, 1);
  PlanChoice choice{.chunk_rows = 128, .chunk_cols = 256, .cursors = {}};
  const double fused_s = run.simulated_s(choice);
  choice.is_fused = false;
  const double unfused_s = run.simulated_s(choice);
  EXPECT_GT(unfused_s, 1.2 * fused_s);
  EXPECT_TRUE(run.plan().choice.is_fused);
}

// ---- planted faults -------------------------------------------------------------------------------------------------

OpSimulation three_calls(const Layout& layout, int64_t window = 0) {
  OpSimulation simulation = small_simulation(layout);
  for (int64_t call = 0; call < 3; ++call) {
    const std::vector<int64_t> rows(static_cast<size_t>(ranks_of(layout)), 8 + call);
    simulation.add_call<RankModel>(problem(rows, 12), {small_plan(window)});
  }
  return simulation;
}

TEST(GemmRsSimulation, FaultsOfTheRolesThatAllOpsHaveAreNamed) {
  for (const Layout& layout : {Layout{2, 2}, Layout{3, 1}}) expect_faults_of_call_roles_are_named(three_calls(layout));
}

// A plan that is not fused, on a rank that adds up nothing: nobody else waits for its words.
TEST(GemmRsSimulation, AMissingDrainIsNamed) {
  OpSimulation simulation = small_simulation({2});
  PlanChoice choice = small_plan();
  choice.is_fused = false;
  for (int call = 0; call < 3; ++call) simulation.add_call<RankModel>(problem({0, 9}), {choice});
  expect_missing_drain_is_named(std::move(simulation));
}

TEST(GemmRsSimulation, ALostSignalOfAnyRoleIsNamed) {
  for (const char* role : {"compute", "reduce", "send"}) {
    expect_named(three_calls({2, 2}), {.fault = SimFault::drop_signal, .role = role, .rank = 1, .nth = 1},
                 {ViolationKind::wait_without_signal});
  }
  for (const char* role : {"compute", "reduce", "send", "finish"}) {
    expect_named(three_calls({2, 2}, 1), {.fault = SimFault::drop_signal, .role = role, .rank = 1, .nth = 1},
                 {ViolationKind::wait_without_signal});
  }
}

TEST(GemmRsSimulation, ASignalBeforeItsDataIsNamed) {
  for (const char* role : {"compute", "reduce"}) {
    expect_named(three_calls({2, 2}), {.fault = SimFault::early_signal, .role = role, .nth = -1},
                 {ViolationKind::read_too_early, ViolationKind::done_too_early});
  }
}

TEST(GemmRsSimulation, AChunkInTheWrongSlotIsNamed) {
  for (const char* role : {"compute", "reduce", "send"}) {
    expect_named(three_calls({2, 2}), {.fault = SimFault::wrong_slot, .role = role, .nth = 1},
                 {ViolationKind::wrong_slot, ViolationKind::overwritten, ViolationKind::read_too_early});
  }
}

TEST(GemmRsSimulation, ARoleThatDoesNotWaitForWhatItAddsUpIsNamed) {
  for (const char* role : {"reduce", "send", "finish"}) {
    expect_named(three_calls({2, 2}), {.fault = SimFault::drop_need, .role = role},
                 {ViolationKind::read_too_early, ViolationKind::record_unmatched, ViolationKind::signal_without_wait});
  }
}

TEST(GemmRsSimulation, ARoleThatDoesNotWaitForASlotIsNamed) {
  const OpSimulation simulation = three_calls({2, 2}, 1);
  const FlagLayout& flags = simulation.program().arena.flags;
  const uint32_t slot = flags.chunk(kSlotFree, Rank{0}, Chunk{0}), sum = flags.chunk(kSumSlotFree, Rank{0}, Chunk{0});
  expect_named(simulation, {.fault = SimFault::drop_need, .role = "compute", .word = slot},
               {ViolationKind::overwritten, ViolationKind::wrong_slot, ViolationKind::signal_without_wait});
  expect_named(simulation, {.fault = SimFault::drop_need, .role = "send", .word = sum},
               {ViolationKind::overwritten, ViolationKind::wrong_slot, ViolationKind::signal_without_wait});
}

}  // namespace
}  // namespace tilewire::gemm_rs
