// Calls on thread ranks: what only this op has, and the faults that are its own. All else about calls is in
// ops/reduction_calls_test.cc, roundings in ops/reduction_rounding_test.cc, the faults of all ops in ops/op_fault_test.cc.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ops/gemm_ar/call_fixture.h"
#include "testing/simulation_test_support.h"

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

// Nodes so wide that a node sum goes to another rank than the one that adds up the chunk there.
TEST(GemmAr, OneShotBetweenNodesOfSixFourAndThreeGivesEveryElement) {
  run_and_check(test_options(), {with_plan(odd_call({6, 4, 3}, {9}, 40), one_shot_plan(4, 8)),
                                 with_plan(odd_call({6, 4, 3}, {9}, 40), two_shots(4, 8))});
}

// ---- the same bits --------------------------------------------------------------------------------------------------

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
