// Calls on thread ranks: every element, every shape class, every layout, both forms, and the faults that are this op's own.
// Roundings are in ops/reduction_rounding_test.cc, the faults of all ops in ops/op_fault_test.cc.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "executor/simulation_test_support.h"
#include "ops/gemm_ar/random_calls.h"

namespace tilewire::gemm_ar {
namespace {

// The planner's choice, and both forms by chunks that are small enough to be several.
std::vector<TestCall> by_every_form(const TestCall& call) {
  return {call, with_plan(call, two_shots(8, 16)), with_plan(call, two_shots(8, 8, 1)),
          with_plan(call, one_shot_plan(8, 16))};
}

TEST(GemmAr, EveryRowCountFromNoneToMoreThanChunksGivesEveryElementInBothForms) {
  std::vector<TestCall> calls;
  for (const int64_t rows : {0, 1, 2, 3, 4, 5, 17, 40, 130}) {
    for (const TestCall& call : by_every_form(odd_call({2, 2}, {rows}))) calls.push_back(call);
  }
  run_and_check(test_options(), calls);
}

TEST(GemmAr, SizesOfZeroAndOneAreLegal) {
  std::vector<TestCall> calls;
  for (const std::vector<int64_t>& k : {std::vector<int64_t>{0, 0, 0, 0}, {1, 1, 1, 1}, {0, 5, 0, 1}}) {
    for (const int64_t n : {0, 1, 8}) {
      const TestCall call{.layout = {2, 2}, .rows = {3}, .k = k, .n = n, .has_bias = true, .has_residual = true};
      for (const TestCall& of_form : by_every_form(call)) calls.push_back(of_form);
    }
  }
  run_and_check(test_options(), calls);
}

TEST(GemmAr, EveryWorldSizeAndLayoutGivesEveryElementInBothForms) {
  const std::vector<Layout> layouts = {{1}, {2}, {1, 1}, {3, 1}, {1, 3}, {2, 3}, {1, 1, 2}, {4}, {1, 2, 1, 2}};
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(testing::PrintToString(layout));
    std::vector<TestCall> calls = by_every_form(odd_call(layout, {37}, 29));
    calls.push_back(with_plan(odd_call(layout, {1}, 64), one_shot_plan(1, 8)));
    run_and_check(test_options(), calls);
  }
}

// Nodes so wide that a node sum goes to another rank than the one that adds up the chunk there.
TEST(GemmAr, OneShotBetweenNodesOfSixFourAndThreeGivesEveryElement) {
  run_and_check(test_options(), {with_plan(odd_call({6, 4, 3}, {9}, 40), one_shot_plan(4, 8)),
                                 with_plan(odd_call({6, 4, 3}, {9}, 40), two_shots(4, 8))});
}

TEST(GemmAr, EveryDtypeOfInputWireAndResultGivesEveryElement) {
  std::vector<TestCall> calls;
  constexpr DataType kAll[] = {DataType::bf16, DataType::fp16, DataType::fp32};
  for (const DataType dtype : kAll) {
    for (const DataType wire : kAll) {
      for (const DataType out : kAll) {
        TestCall c = odd_call({2, 2}, {45}, 13);
        c.dtype = dtype;
        c.out_dtype = out;
        c.wire_dtype = wire;
        c.is_n_by_k = out == DataType::fp16;
        c.has_bias = out != DataType::bf16;
        c.has_residual = out != DataType::fp16;
        calls.push_back(with_plan(c, two_shots(8, 8)));
        calls.push_back(with_plan(c, one_shot_plan(8, 8)));
      }
    }
    calls.push_back(odd_call({2, 2}, {45}));
    calls.back().dtype = dtype;  // and its own wire
  }
  run_and_check(test_options(), calls);
}

TEST(GemmAr, InputsInAnyOrderInMemoryGiveEveryElement) {
  std::vector<TestCall> calls;
  for (const bool is_a_transposed : {false, true}) {
    for (const bool is_n_by_k : {false, true}) {
      calls.push_back(odd_call({2, 1}, {49}, 40));
      calls.back().is_a_transposed = is_a_transposed;
      calls.back().is_n_by_k = is_n_by_k;
    }
  }
  run_and_check(test_options(), calls);
}

TEST(GemmAr, UnorderedNetworkWithCountedArrivalsGivesEveryElement) {
  for (const char* arrivals : {"proxy", "relay"}) {
    Options options = test_options();
    options.emulated_personality = "srd";
    options.emulated_latency_us = 50;
    options.test_delay_us = 100;
    options.ring_entries = 16;
    options.arrivals = arrivals;
    std::vector<TestCall> calls;
    for (uint64_t i = 0; i < 12; ++i) {
      const PlanChoice choice = i % 3 == 0 ? one_shot_plan(8, 16) : two_shots(8, 16, i % 3 == 1 ? 2 : 0);
      calls.push_back(with_plan(with_salt(odd_call({2, 2}, {91}, 21), i), choice));
    }
    run_and_check(options, calls);
  }
}

// Inputs change in each call, so stale data of an earlier call would show.
TEST(GemmAr, RandomSequencesOfShapesAndFormsOnOneArenaUnderRandomDelaysGiveEveryElement) {
  std::mt19937_64 random(20261130);
  for (const Layout& layout : {Layout{2, 2}, Layout{2, 1}, Layout{1, 1, 2}, Layout{2, 3}}) {
    Options options = test_options();
    options.test_delay_us = 300;
    options.emulated_latency_us = 20;
    options.emulated_personality = random() % 2 == 0 ? "rc" : "srd";
    options.emulated_seed = static_cast<int64_t>(random() % 1000);
    Dice dice(random());
    std::vector<TestCall> calls;
    for (int i = 0; i < 10; ++i) calls.push_back(OpRandomCalls<Op>::call(layout, dice));
    SCOPED_TRACE(testing::PrintToString(layout) + " " + options.emulated_personality);
    run_and_check(options, calls);
  }
}

TEST(GemmAr, EpochsGoPastThirtyTwoBitsAndPastTheNarrowFieldOfTheImmediate) {
  std::vector<TestCall> calls;
  for (uint64_t i = 0; i < 8; ++i) {
    calls.push_back(
        with_plan(with_salt(odd_call({2, 2}, {43}), i), i % 2 == 0 ? two_shots(8, 8) : one_shot_plan(8, 8)));
  }
  for (const char* personality : {"rc", "srd"}) {
    for (const int64_t first : {(int64_t{1} << 32) - 3, (int64_t{1} << 11) - 3, (int64_t{1} << 10) - 3}) {
      Options options = test_options();
      options.emulated_personality = personality;
      options.first_epoch = first;
      run_and_check(options, calls);
    }
  }
}

TEST(GemmAr, TheArenaGrowsWhenAShapeNeedsMore) {
  Options options = test_options();
  options.arena_initial_bytes = 4096;
  run_and_check(options, {odd_call({2, 2}, {8}), odd_call({2, 2}, {1200}, 64), odd_call({2, 2}, {1802}, 64)});
}

// ---- the same bits --------------------------------------------------------------------------------------------------

// A call on data whose sums are not exact in fp32, so that any other order of the additions shows.
std::vector<std::byte> inexact_result(Session& session, Operation& op, DataType dtype, const std::string& plan_json) {
  const TestCall c{.layout = {2, 2},
                   .rows = {153},
                   .k = {60, 61, 300, 7},
                   .n = 81,
                   .dtype = dtype,
                   .has_bias = true,
                   .plan_json = plan_json};
  CallChecker checker(c, session.rank().value);
  Arguments args = checker.arguments();
  NormalNumbers normal(session.rank());
  const OwnedMatrix a = matrix_of(args.a.rows, args.a.cols, dtype, normal);
  const OwnedMatrix b = matrix_of(args.a.cols, c.n, dtype, normal);
  args.a = a.view();
  args.b = {b.view()};
  op.run(args);
  return checker.out().bytes();
}

// Plans of both forms, fused and not, under windows.
std::vector<std::string> many_plans() {
  std::vector<std::string> plans = {"", ""};
  for (const auto& [rows, cols] : {std::pair{153, 81}, std::pair{33, 32}, std::pair{16, 40}}) {
    for (const bool is_fused : {true, false}) {
      for (PlanChoice choice :
           {two_shots(rows, cols), two_shots(rows, cols, 1), two_shots(rows, cols, 3), one_shot_plan(rows, cols)}) {
        if (!is_fused && choice.window > 0) continue;
        choice.is_fused = is_fused;
        choice.workers = is_fused ? 2 : 1;
        choice.reduce_workers = is_fused ? 1 : 2;
        choice.gather_behind = is_fused ? 1 : 3;
        choice.cursors = {.load_ahead = is_fused ? 1 : 0, .publish_behind = 1};
        plans.push_back(to_json(choice));
      }
    }
  }
  return plans;
}

TEST(GemmAr, BitsOfInexactSumsDependNeitherOnTheFormNorOnThePlanNorOnTiming) {
  Options options = test_options();
  options.test_delay_us = 50;
  expect_same_bits<Op>(options, {DataType::bf16, DataType::fp16, DataType::fp32}, many_plans(), inexact_result);
}

TEST(GemmAr, ThirtyRepeatsUnderDelaysAreBitwiseEqual) {
  Options options = test_options();
  options.test_delay_us = 200;
  options.workers = 2;
  for (const PlanChoice& choice : {two_shots(16, 16), one_shot_plan(16, 16)}) {
    expect_same_bits<Op>(options, {DataType::bf16}, std::vector<std::string>(30, to_json(choice)), inexact_result);
  }
}

// Every rank has the bits of every other one, of inexact sums.
TEST(GemmAr, AllRanksHaveTheSameBits) {
  for (const PlanChoice& choice : {two_shots(16, 16), one_shot_plan(16, 16)}) {
    std::vector<std::vector<std::byte>> of_rank(4);
    const auto outcomes = run_thread_cluster({2, 2}, test_options(), [&](Session& session) {
      Operation op(session);
      of_rank[static_cast<size_t>(session.rank().value)] = inexact_result(session, op, DataType::bf16, to_json(choice));
    });
    EXPECT_EQ(first_error(outcomes), "");
    for (const std::vector<std::byte>& bytes : of_rank) EXPECT_TRUE(bytes == of_rank[0]) << to_json(choice);
  }
}

// Handles of other shapes and calls of theirs in between change nothing.
TEST(GemmAr, TheSameBitsHoweverManyOtherHandlesThereAre) {
  const auto outcomes = run_thread_cluster({2, 2}, test_options(), [&](Session& session) {
    Operation op(session);
    const std::vector<std::byte> alone = inexact_result(session, op, DataType::bf16, "");
    for (const int64_t rows : {1, 64, 200}) {
      op.agree({.m = rows, .n = 48, .k = 16}, "");
      CallChecker other(odd_call({2, 2}, {rows}, 48), session.rank().value);
      op.run(other.arguments());
      other.check();
      ASSERT_TRUE(inexact_result(session, op, DataType::bf16, "") == alone) << rows;
    }
  });
  EXPECT_EQ(first_error(outcomes), "");
}

// ---- volume ---------------------------------------------------------------------------------------------------------

// Each element of the sum crosses from each node to the owner's, and the result from there to each node: 2 (nodes - 1) /
// nodes of the matrix, shared by the ranks of the node.
TEST(GemmAr, VolumeOfTwoShotsIsOptimal) {
  const auto outcomes = run_thread_cluster({2, 2}, test_options(), [&](Session& session) {
    Operation op(session);
    CallChecker checker(with_plan(odd_call({2, 2}, {64}, 64), two_shots(16, 16)), session.rank().value);
    const CallReport report = op.run(checker.arguments());
    checker.check();
    const int64_t quarter = 64 * 64 / 4, sums = quarter * 2, results = quarter * 4;  // bf16 over the wire, fp32 results
    EXPECT_EQ(report.network_bytes, sums + results);
    const uint64_t records = 16 * session.proxy()->totals().peers.size();
    EXPECT_EQ(session.proxy()->totals().data_bytes(), static_cast<uint64_t>(sums + results) + records);
    // Partial sums for the own rail and its node sums, and the own results; to the peer its partial sums, the own results
    // and those that came by the rail.
    EXPECT_EQ(report.copy_bytes, 2 * sums + sums + results);
    EXPECT_EQ(report.node_bytes, 2 * sums + 2 * results);
  });
  EXPECT_EQ(first_error(outcomes), "");
}

TEST(GemmAr, InOneShotEachRankSendsItsShareOfTheNodesSum) {
  const auto outcomes = run_thread_cluster({2, 2}, test_options(), [&](Session& session) {
    Operation op(session);
    CallChecker checker(with_plan(odd_call({2, 2}, {1}, 64), one_shot_plan(1, 8)), session.rank().value);
    const CallReport report = op.run(checker.arguments());
    checker.check();
    EXPECT_EQ(report.network_bytes, 64 * 2 / 2);
    EXPECT_EQ(report.copy_bytes, 64 * 2 + 64 * 2 / 2);
    EXPECT_EQ(report.node_bytes, 64 * 2 + 64 * 2 / 2);
    const uint64_t records = 16 * session.proxy()->totals().peers.size();
    EXPECT_EQ(session.proxy()->totals().data_bytes(), 64 * 2 / 2 + records);
  });
  EXPECT_EQ(first_error(outcomes), "");
}

// ---- faults ---------------------------------------------------------------------------------------------------------

TEST(GemmAr, RanksThatDisagreeAllHearBothSidesAndWhatToPass) {
  struct Difference {
    std::vector<std::string> texts;
    std::function<void(Arguments&)> spoil;
  };
  static float values[23 * 12] = {};
  const std::vector<Difference> all = {
      {{"bf16 over bf16", "bf16 over fp32", "pass the same wire_dtype="},
       [](Arguments& args) { args.wire_dtype = DataType::fp32; }},
      {{"to fp32", "to fp16", "pass the same out_dtype="},
       [](Arguments& args) {
         args.out_dtype = DataType::fp16;
         args.make_results = [](const Problem& p) { return MatrixView{values, p.m, p.n, p.n, 1, p.out_dtype}; };
       }},
      {{"adding nothing", "adding a bias", "bias= and residual="}, [](Arguments& args) { args.bias = {values}; }},
      {{"adding nothing", "adding a residual", "bias= and residual="},
       [](Arguments& args) { args.residual = MatrixView{values, 23, 12, 12, 1, DataType::fp32}; }},
      {{"is_one_shot = false", "is_one_shot = true", "pass the same plan="},
       [](Arguments& args) { args.plan_json = to_json(one_shot_plan(8, 8)); }},
      {{"chunk_rows = 8", "chunk_rows = 9", "pass the same plan="},
       [](Arguments& args) { args.plan_json = to_json(two_shots(9, 8)); }}};
  for (const Difference& one : all) {
    const auto outcomes = run_spoiled<Op>([&](Rank r, Arguments& args) {
      if (r == Rank{1}) one.spoil(args);
    });
    expect_everywhere(outcomes, ErrorKind::mismatch, one.texts);
  }
}

TEST(GemmAr, ArgumentsThatCannotBeAreRefusedByName) {
  struct Bad {
    std::string text;
    std::function<void(Arguments&)> spoil;
  };
  static float one = 0;
  const std::vector<Bad> all = {
      {"wrong number of weights", [](Arguments& args) { args.b.push_back(args.b[0]); }},
      {"residual has the wrong shape",
       [](Arguments& args) { args.residual = MatrixView{&one, 1, 1, 1, 1, DataType::fp32}; }},
  };
  for (const Bad& bad : all) {
    const auto outcomes = run_spoiled<Op>([&](Rank r, Arguments& args) {
      if (r == Rank{1}) bad.spoil(args);
    });
    expect_everywhere(outcomes, {bad.text});
    EXPECT_EQ(outcomes[1].kind, ErrorKind::invalid_argument) << bad.text;
  }
}

}  // namespace
}  // namespace tilewire::gemm_ar
