// The protocol of MoE dispatch in the simulator: random sequences of calls on one arena, every order for small cases,
// windows, and rules broken on purpose, which must be named.
#include "ops/moe_dispatch/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/moe_dispatch/random_calls.h"
#include "ops/moe_dispatch/routing_fixture.h"
#include "testing/judged_runs.h"
#include "testing/simulation_test_support.h"

namespace tilewire::moe_dispatch {
namespace {

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> kLayouts = {{1}, {2}, {2, 2}, {3, 1}, {1, 3}, {2, 3}, {1, 1, 2}, {1, 1, 1}};
  return kLayouts;
}

PlanChoice small_plan(int64_t block_tokens = 3, int64_t window = 1, Cursors cursors = {}) {
  return {.block_tokens = block_tokens,
          .window = window,
          .chunk_tokens = 2,
          .pieces = 2,
          .tile_rows = 3,
          .tile_cols = 8,
          .raster_rows = 2,
          .workers = 2,
          .cursors = cursors};
}

// Calls of all ranks with the routings that they draw.
struct RoutedCalls {
  OpSimulation simulation;

  explicit RoutedCalls(const Layout& layout) : simulation(small_simulation(layout)) {}

  void add(Problem problem, const std::vector<PlanChoice>& choices, const Routes& routes,
           const std::function<void(Schedule&)>& change = {}) {
    const auto ranks = std::make_shared<RoutedRanks>(routes, problem.most_rows);
    simulation.keep(ranks);
    simulation.add_call<RankModel>(problem, choices, {}, [&](Schedule& s) {
      ranks->apply(s);
      if (change) change(s);
    });
  }
};

Problem small_problem(const Layout& layout, int32_t top_k = 2, int64_t most_rows = 200) {
  return {.rank_of_expert = dealt_experts(5, ranks_of(layout)),
          .h = 8,
          .top_k = top_k,
          .most_rows = most_rows,
          .planned_tokens = 8,
          .most_tokens = 12,
          .cols = 12};
}

// Two calls with uneven tokens, which take several rounds each.
RoutedCalls uneven_calls(const Layout& layout, const PlanChoice& choice, Skew skew,
                         const std::function<void(Schedule&)>& change = {}) {
  RoutedCalls calls(layout);
  for (int64_t call = 0; call < 2; ++call) {
    std::vector<int64_t> tokens;
    for (int64_t r = 0; r < ranks_of(layout); ++r) tokens.push_back((r * 5 + 7 * call + 2) % 11);
    calls.add(small_problem(layout), {choice}, draw_all_routes(skew, tokens, 2, 5, static_cast<uint64_t>(call) + 1),
              change);
  }
  return calls;
}

TEST(MoeDispatchSimulation, RandomSequencesOfFourCallsKeepEveryRule) {
  expect_random_sequences_keep_every_rule({&OpRandomCalls<Op>::add}, 25);
}

TEST(MoeDispatchSimulation, EverySkewOnEveryLayoutKeepsEveryRule) {
  for (const Layout& layout : layouts()) {
    for (const Skew skew : {Skew::uniform, Skew::zipf, Skew::one, Skew::with_none}) {
      for (const bool is_fused : {true, false}) {
        for (const bool local_first : {true, false}) {
          PlanChoice choice = small_plan(3, 2, {2, 2});
          choice.is_fused = is_fused;
          choice.local_first = local_first;
          const RoutedCalls calls = uneven_calls(layout, choice, skew);
          const SimReport report = walk_sequence(calls.simulation, 1, 4);
          ASSERT_TRUE(report.ok()) << testing::PrintToString(layout) << " skew " << static_cast<int>(skew) << "\n"
                                   << report.text();
        }
      }
    }
  }
}

TEST(MoeDispatchSimulation, EveryOrderOfASmallCallKeepsEveryRule) {
  for (const Layout& layout : {Layout{2}, Layout{1, 1}}) {
    RoutedCalls calls(layout);
    PlanChoice choice = small_plan(1, 1);
    choice.workers = 1;
    choice.pieces = 1;
    Problem problem = small_problem(layout, 1);
    problem.rank_of_expert = {0, 1};
    problem.cols = 0;
    calls.add(problem, {choice}, {.top_k = 1, .ids = {{1}, {}}});
    // An ordered network has half a million orders, and none in which chunks and words pass each other.
    expect_every_order_keeps_every_rule(calls.simulation, SimNetwork::counted);
  }
}

TEST(MoeDispatchSimulation, RanksWithoutTokensWithoutExpertsAndTokensForNobodyAreCallsLikeOthers) {
  for (const Layout& layout : layouts()) {
    const auto ranks = static_cast<size_t>(ranks_of(layout));
    RoutedCalls calls(layout);
    Problem all_on_last = small_problem(layout);
    all_on_last.rank_of_expert.assign(5, static_cast<int32_t>(ranks) - 1);
    Problem no_columns = small_problem(layout), no_depth = small_problem(layout);
    no_columns.cols = 0;
    no_depth.h = 0;
    std::vector<int64_t> none(ranks, 0), first = none, even(ranks, 4);
    first[0] = 9;
    for (const Problem& problem : {small_problem(layout), all_on_last, no_columns, no_depth}) {
      calls.add(problem, {small_plan()}, draw_all_routes(Skew::uniform, first, 2, 5, 1));
      calls.add(problem, {small_plan()}, draw_all_routes(Skew::uniform, none, 2, 5, 1));
      Routes nobody = draw_all_routes(Skew::uniform, even, 2, 5, 1);
      for (auto& ids : nobody.ids) std::fill(ids.begin(), ids.end(), -1);
      calls.add(problem, {small_plan()}, nobody);
    }
    const SimReport report = run_random_seeds(calls.simulation.program(), {}, 1, 10);
    EXPECT_TRUE(report.ok()) << testing::PrintToString(layout) << "\n" << report.text();
  }
}

// More rows than a rank may get: nothing moves, and the next call is one like others.
TEST(MoeDispatchSimulation, ACallThatOverflowsEndsLikeAnyOther) {
  for (const Layout& layout : layouts()) {
    RoutedCalls calls(layout);
    const std::vector<int64_t> tokens(static_cast<size_t>(ranks_of(layout)), 6);
    const Problem tight = small_problem(layout, 2, 1);
    for (const Problem& problem : {tight, small_problem(layout), tight}) {
      calls.add(problem, {small_plan()}, draw_all_routes(Skew::uniform, tokens, 2, 5, 3));
    }
    const SimReport report = run_random_seeds(calls.simulation.program(), {}, 1, 20);
    EXPECT_TRUE(report.ok()) << testing::PrintToString(layout) << "\n" << report.text();
  }
}

// ---- windows --------------------------------------------------------------------------------------------------------

TEST(MoeDispatchSimulation, TheSmallestWindowPassesOnEveryLayoutAndSoDoLargerOnes) {
  for (const Layout& layout : layouts()) {
    for (const int64_t window : {1, 2, 3}) {
      for (const bool is_strict : {false, true}) {
        SimOptions options;
        options.has_strict_load_ahead = is_strict;
        const RoutedCalls calls = uneven_calls(layout, small_plan(1, window, {2, 2}), Skew::zipf);
        const SimReport report = run_random_seeds(calls.simulation.program(), options, 1, 10);
        EXPECT_TRUE(report.ok()) << testing::PrintToString(layout) << " window " << window << "\n" << report.text();
      }
    }
  }
}

// No window at all: the first round would have to be free before it has come.
TEST(MoeDispatchSimulation, AWindowOneSmallerThanTheSmallestIsACycle) {
  for (const Layout& layout : {Layout{2}, Layout{2, 2}}) {
    const auto shrink = [](Schedule& s) { s.window = 0; };
    const RoutedCalls calls = uneven_calls(layout, small_plan(1, 1), Skew::uniform, shrink);
    const SimReport report = run_random_seeds(calls.simulation.program(), {}, 1, 10);
    EXPECT_TRUE(report.has(ViolationKind::cycle)) << report.text();
    const bool is_window =
        report.text().find("taken") != std::string::npos || report.text().find("unstaged") != std::string::npos;
    EXPECT_TRUE(is_window) << report.text();
  }
}

TEST(MoeDispatchSimulation, AWindowLargerThanItsSlotsOverwrites) {
  for (const Layout& layout : {Layout{2}, Layout{1, 1}}) {
    const auto widen = [](Schedule& s) { s.window = 2; };
    const RoutedCalls calls = uneven_calls(layout, small_plan(1, 1), Skew::uniform, widen);
    const SimReport report = run_random_seeds(calls.simulation.program(), {}, 1, 50);
    EXPECT_TRUE(report.has(ViolationKind::overwritten) || report.has(ViolationKind::wrong_slot)) << report.text();
  }
}

TEST(MoeDispatchSimulation, ASlotThatIsUsedBeforeItIsFreeIsNamed) {
  RoutedCalls calls({2, 2});
  calls.add(small_problem({2, 2}), {small_plan(1, 1)}, draw_all_routes(Skew::one, {6, 6, 6, 6}, 2, 5, 1));
  const FlagLayout& flags = calls.simulation.program().arena.flags;
  const std::vector<ViolationKind> names = {ViolationKind::overwritten, ViolationKind::wrong_slot,
                                            ViolationKind::read_too_early};
  for (const char* role : {"push", "forward"}) {
    expect_named(calls.simulation,
                 {.fault = SimFault::drop_need, .role = role, .word = flags.chunk(kTaken, Rank{0}, Chunk{0})}, names);
  }
  expect_named(calls.simulation,
               {.fault = SimFault::drop_need, .role = "send", .word = flags.chunk(kUnstaged, Rank{0}, Chunk{0})},
               names);
  expect_named(calls.simulation,
               {.fault = SimFault::drop_need, .role = "release", .word = flags.chunk(kComputed, Rank{0}, Chunk{1})},
               {ViolationKind::overwritten, ViolationKind::wrong_slot, ViolationKind::signal_without_wait});
}

// ---- what the planner says and what the simulator says ----

TEST(MoeDispatchSimulation, ThePlannersNumbersAndTheSimulatorsDoNotContradictEachOther) {
  struct Shape {
    Layout layout;
    int64_t tokens, h, cols;
    int32_t experts, top_k, workers;
  };
  const std::vector<Shape> shapes = {{{2, 2}, 128, 512, 512, 16, 4, 1},
                                     {{4}, 256, 256, 256, 8, 2, 2},
                                     {{1}, 64, 256, 512, 4, 2, 2},
                                     {{3, 1}, 100, 100, 64, 60, 6, 2},
                                     {{1, 1, 2}, 64, 512, 0, 8, 1, 4}};
  for (const Shape& shape : shapes) {
    Problem problem{.rank_of_expert = dealt_experts(shape.experts, ranks_of(shape.layout)),
                    .h = shape.h,
                    .top_k = shape.top_k,
                    .most_rows = shape.tokens * shape.top_k * ranks_of(shape.layout),
                    .planned_tokens = shape.tokens,
                    .most_tokens = shape.tokens};
    problem.cols = shape.cols;
    Judged<RankModel>(shape.layout, problem, {}, shape.workers).expect_agreement(1e-9);
  }
}

// ---- planted faults -------------------------------------------------------------------------------------------------

RoutedCalls three_calls(const Layout& layout) {
  RoutedCalls calls(layout);
  for (uint64_t call = 0; call < 3; ++call) {
    const std::vector<int64_t> tokens(static_cast<size_t>(ranks_of(layout)), 6 + static_cast<int64_t>(call));
    calls.add(small_problem(layout), {small_plan()}, draw_all_routes(Skew::uniform, tokens, 2, 5, call + 1));
  }
  return calls;
}

TEST(MoeDispatchSimulation, FaultsOfTheRolesThatAllOpsHaveAreNamed) {
  for (const Layout& layout : {Layout{2, 2}, Layout{3, 1}}) {
    expect_faults_of_call_roles_are_named(three_calls(layout).simulation);
  }
}

TEST(MoeDispatchSimulation, AMissingDrainIsNamed) {
  RoutedCalls calls = three_calls({2, 2});
  expect_missing_drain_is_named(std::move(calls.simulation));
}

TEST(MoeDispatchSimulation, ALostSignalOfAnyRoleIsNamed) {
  const RoutedCalls calls = three_calls({2, 2});
  for (const char* role : {"count", "push"}) {
    expect_named(calls.simulation, {.fault = SimFault::drop_signal, .role = role, .rank = 1, .nth = 1},
                 {ViolationKind::wait_without_signal});
  }
  for (const char* role : {"route", "forward"}) {
    expect_named(calls.simulation, {.fault = SimFault::drop_signal, .role = role, .rank = 1, .nth = 0},
                 {ViolationKind::wait_without_signal});
  }
  expect_named(calls.simulation, {.fault = SimFault::drop_signal, .role = "send", .rank = 1, .nth = 2},
               {ViolationKind::wait_without_signal});
  // The first piece of work of these waits for the tables alone.
  for (const char* role : {"pack", "release"}) {
    expect_named(calls.simulation, {.fault = SimFault::drop_signal, .role = role, .rank = 1, .nth = 1},
                 {ViolationKind::wait_without_signal});
  }
}

TEST(MoeDispatchSimulation, ASignalBeforeItsDataIsNamed) {
  const RoutedCalls calls = three_calls({2, 2});
  for (const char* role : {"count", "route", "push", "pack", "forward"}) {
    expect_named(calls.simulation, {.fault = SimFault::early_signal, .role = role, .nth = -1},
                 {ViolationKind::read_too_early, ViolationKind::done_too_early, ViolationKind::overwritten});
  }
}

TEST(MoeDispatchSimulation, RowsInTheWrongPlaceAreNamed) {
  const RoutedCalls calls = three_calls({2, 2});
  for (const char* role : {"count", "push", "pack", "forward"}) {
    // A forward role has a record and a look at the tables before its first rows.
    const int32_t nth = role == std::string("forward") ? 2 : 1;
    expect_named(calls.simulation, {.fault = SimFault::wrong_slot, .role = role, .nth = nth},
                 {ViolationKind::wrong_slot, ViolationKind::overwritten, ViolationKind::read_too_early});
  }
}

TEST(MoeDispatchSimulation, ARoleThatDoesNotWaitIsNamed) {
  const RoutedCalls calls = three_calls({2, 2});
  const std::vector<ViolationKind> names = {ViolationKind::read_too_early, ViolationKind::record_unmatched,
                                            ViolationKind::signal_without_wait, ViolationKind::overwritten};
  for (const char* role : {"route", "push", "pack", "send", "forward", "compute", "release"}) {
    expect_named(calls.simulation, {.fault = SimFault::drop_need, .role = role}, names);
  }
  const FlagLayout& flags = calls.simulation.program().arena.flags;
  for (const char* role : {"push", "pack", "send", "forward", "compute", "release"}) {
    for (int32_t rank = 0; rank < 4; ++rank) {
      expect_named(calls.simulation,
                   {.fault = SimFault::drop_need,
                    .role = role,
                    .rank = rank,
                    .word = flags.chunk(kRouted, Rank{rank}, Chunk{0})},
                   {ViolationKind::read_too_early});
    }
  }
}

}  // namespace
}  // namespace tilewire::moe_dispatch
