// Faults that are GEMM+ReduceScatter's own. Those of all ops are in ops/op_fault_test.cc.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ops/gemm_rs/call_fixture.h"

namespace tilewire::gemm_rs {
namespace {

const TestCall kCall = OpTestTraits<Op>::small_call();

TEST(GemmRsFault, RanksThatDisagreeOnRowsAllHearBothListsAndWhatToPass) {
  const auto outcomes = run_spoiled<Op>([](Rank r, Arguments& args) {
    args.rows.counts = r.value == 2 ? std::vector<int64_t>{19, 4, 9, 11} : kCall.rows;
  });
  expect_everywhere(outcomes, ErrorKind::mismatch, {"20, 3, 9, 11", "19, 4, 9, 11", "rank 2", "pass the same rows="});
}

TEST(GemmRsFault, RanksThatDisagreeOnTheWireAllHearWhatToPass) {
  const auto outcomes = run_spoiled<Op>([](Rank r, Arguments& args) {
    if (r == Rank{1}) args.wire_dtype = DataType::fp32;
  });
  expect_everywhere(outcomes, ErrorKind::mismatch, {"bf16 over bf16", "bf16 over fp32", "pass the same wire_dtype="});
}

TEST(GemmRsFault, RanksThatDisagreeOnThePlanAllHearWhatToPass) {
  const auto outcomes = run_spoiled<Op>([](Rank r, Arguments& args) {
    args.plan_json =
        to_json(PlanChoice{.chunk_rows = 8, .chunk_cols = 12, .window = r == Rank{1} ? 1 : 0, .cursors = {}});
  });
  expect_everywhere(outcomes, ErrorKind::mismatch, {"window = 0", "window = 1", "pass the same plan="});
}

TEST(GemmRsFault, ArgumentsThatCannotBeAreRefusedByName) {
  struct Bad {
    std::string text;
    std::function<void(Arguments&)> spoil;
  };
  const std::vector<Bad> all = {
      {"wrong number of weights", [](Arguments& args) { args.b.push_back(args.b[0]); }},
      {"there are no row counts to exchange",
       [](Arguments& args) {
         args.rows = {RowCounts::From::exchange, {}};
       }},
      {"rows does not fit a", [](Arguments& args) { args.rows.counts[0] += 1; }},
      {"rows has the wrong length", [](Arguments& args) { args.rows.counts.push_back(0); }},
      {"residual has the wrong shape",
       [](Arguments& args) {
         static float one = 0;
         args.residual = MatrixView{&one, 1, 1, 1, 1, DataType::fp32};
       }},
  };
  for (const Bad& bad : all) {
    const auto outcomes = run_spoiled<Op>([&](Rank r, Arguments& args) {
      if (r == Rank{1}) bad.spoil(args);
    });
    expect_everywhere(outcomes, {bad.text});
    EXPECT_EQ(outcomes[1].kind, ErrorKind::invalid_argument) << bad.text;
  }
}

TEST(GemmRsFault, AResultThatAliasesTheResidualIsRefusedByName) {
  std::vector<float> shared(20 * 12);
  const auto outcomes = run_spoiled<Op>([&](Rank r, Arguments& args) {
    if (r != Rank{0}) return;
    args.residual = MatrixView{shared.data(), 20, 12, 12, 1, DataType::fp32};
    args.make_results = [&shared](const Problem& p) { return MatrixView{shared.data(), 20, 12, 12, 1, p.out_dtype}; };
  });
  expect_everywhere(outcomes, {"out overlaps residual"});
}

TEST(GemmRsFault, AHandleWithARowListOfTheWrongLengthIsRefusedOnAllRanks) {
  for (const size_t counts : {3, 5}) {
    const auto outcomes = run_thread_cluster({2, 2}, quick_options(), [&](Session& session) {
      Operation op(session);
      op.agree({.rows = std::vector<int64_t>(counts, 8), .n = 12, .k = 16}, "");
    });
    expect_everywhere(outcomes, ErrorKind::invalid_argument, {std::to_string(counts) + " row counts", "4 ranks"});
  }
}

}  // namespace
}  // namespace tilewire::gemm_rs
