// What the checker of ring attention finds, what calls report, and faults that are the operation's own. Those of all ops
// are in ops/op_fault_test.cc.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "ops/attention/call_fixture.h"

namespace tilewire::attention {
namespace {

// ---- the checker itself

TEST(AttentionChecker, FindsWhatIsWrong) {
  TestCall one = call({30, 30, 30, 30});
  const auto outcomes = run_thread_cluster({2, 2}, test_options(), [&](Session& session) {
    OpCalls<Op> op(session);
    CallChecker checker(one, session.rank().value);
    op.run(checker.arguments());
    ASSERT_LE(checker.compare().of_allowed, 1);
    OwnedMatrix& out = checker.results()[0];
    OwnedMatrix& lse = checker.results()[1];
    const float right = out.get(7, 5), right_lse = lse.get(1, 9);
    out.set(7, 5, right * 1.02 + 0.001);
    EXPECT_GT(checker.compare().of_allowed, 1) << "one element by 2 %";
    out.set(7, 5, right);
    lse.set(1, 9, right_lse + 1e-3);
    EXPECT_GT(checker.compare().of_allowed, 1) << "one logarithm";
    lse.set(1, 9, std::numeric_limits<float>::quiet_NaN());
    EXPECT_GT(checker.compare().of_allowed, 1) << "a NaN";
    lse.set(1, 9, right_lse);
    EXPECT_LE(checker.compare().of_allowed, 1);
    out.fill(0);
    EXPECT_GT(checker.compare().of_allowed, 1) << "zeros";
  });
  EXPECT_EQ(first_error(outcomes), "");
}

// B42, B53: keys of another rank in the place of a rank's own would give another result.
TEST(AttentionChecker, KnowsTheKeysOfARankFromThoseOfAnother) {
  TestCall one = call({30, 30, 30, 30}, false);
  const auto outcomes = run_thread_cluster({2, 2}, test_options(), [&](Session& session) {
    OpCalls<Op> op(session);
    CallChecker checker(one, session.rank().value),
        of_others(one, session.rank().value == 2 ? 3 : session.rank().value);
    Arguments args = checker.arguments();
    args.v = of_others.arguments().v;
    op.run(args);
    EXPECT_GT(checker.compare().of_allowed, 1);
  });
  EXPECT_EQ(first_error(outcomes), "");
}

// ---- reports and refusals

TEST(AttentionFault, AReportCountsTheBytesThatMoved) {
  const TestCall one = call({64, 64, 64, 64}, false, 4, 2);
  const auto outcomes = run_thread_cluster({2, 2}, test_options(), [&](Session& session) {
    OpCalls<Op> op(session);
    CallChecker checker(one, session.rank().value);
    const CallReport report = op.run(checker.arguments());
    const int64_t shard = 64 * 2 * 2 * 64 * 2;  // rows, heads, keys and values, elements, bytes
    EXPECT_EQ(report.copy_bytes, shard);
    EXPECT_EQ(report.network_bytes, shard);
    EXPECT_EQ(report.node_bytes, 2 * shard) << "its own, and what comes in by its rail";
  });
  EXPECT_EQ(first_error(outcomes), "");
}

TEST(AttentionFault, WhatOneRankCanFindWrongIsNamed) {
  const auto refusal = [](const std::function<void(Arguments&)>& spoil) {
    const auto outcomes = run_thread_cluster({2, 2}, quick_options(), [&](Session& session) {
      OpCalls<Op> op(session);
      CallChecker checker(call({8, 8, 8, 8}), session.rank().value);
      Arguments args = checker.arguments();
      spoil(args);
      op.run(args);
    });
    return first_error(outcomes);
  };
  const auto expect = [&](const std::string& text, const std::function<void(Arguments&)>& spoil) {
    const std::string said = refusal(spoil);
    EXPECT_NE(said.find(text), std::string::npos) << said << "\nwithout: " << text;
  };
  expect("must be 64 or 128", [](Arguments& a) { a.q.dim = a.k.dim = a.v.dim = 32; });
  expect("dtypes differ", [](Arguments& a) { a.q.dtype = DataType::fp16; });
  expect("k does not fit q", [](Arguments& a) { a.q.batch = 2; });
  expect("kv_rows does not match k", [](Arguments& a) { a.k.rows = a.v.rows = 7; });
  expect("rows does not match q", [](Arguments& a) { a.q.rows = 7; });
  expect("q has no memory", [](Arguments& a) { a.q.data = nullptr; });
  expect("scale is no number", [](Arguments& a) { a.scale = std::numeric_limits<double>::infinity(); });
  expect("7 positions for 8 rows", [](Arguments& a) {
    a.placement = Placement::given;
    a.positions = {0, 1, 2, 3, 4, 5, 6};
    a.kv_positions = {0, 1, 2, 3, 4, 5, 6, 7};
  });
  expect("positions are out of range", [](Arguments& a) {
    a.placement = Placement::given;
    a.positions = a.kv_positions = {0, 1, 2, 3, 4, 5, 6, -7};
  });
}

// Each rank's own positions are told to the others; where one rank has none to tell, that is said.
TEST(AttentionFault, RanksThatPlaceRowsDifferentlyHearOfIt) {
  const auto outcomes = run_thread_cluster({2, 2}, quick_options(), [&](Session& session) {
    OpCalls<Op> op(session);
    CallChecker checker(call({8, 8, 8, 8}), session.rank().value);
    Arguments args = checker.arguments();
    if (session.rank() == Rank{3}) args.placement = Placement::zigzag;
    op.run(args);
  });
  expect_everywhere(outcomes, ErrorKind::mismatch, {"not the same on all ranks", "contiguous", "zigzag"});
}

// The shape is known and agreed on; documents are each call's own.
TEST(AttentionFault, RanksWithOtherDocumentsHearOfBothInAnyCall) {
  for (const bool is_known_before : {false, true}) {
    const auto outcomes = run_thread_cluster({2, 2}, quick_options(), [&](Session& session) {
      OpCalls<Op> op(session);
      TestCall one = call({8, 8, 8, 8});
      one.problem.documents = one.problem.kv_documents = {0, 9, 30};
      CallChecker checker(one, session.rank().value);
      Arguments args = checker.arguments();
      if (is_known_before) op.run(args);
      if (session.rank() == Rank{3}) args.documents = args.kv_documents = {0, 11, 30};
      op.run(args);
    });
    expect_everywhere(outcomes, ErrorKind::mismatch,
                      {"documents [0, 9, 30]", "documents [0, 11, 30]", "pass the same cu_seqlens="});
  }
}

}  // namespace
}  // namespace tilewire::attention
