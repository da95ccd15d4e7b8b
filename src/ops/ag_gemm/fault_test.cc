// Faults that are AllGather+GEMM's own. Those of all ops are in ops/op_fault_test.cc.
#include <gtest/gtest.h>

#include "ops/ag_gemm/call_fixture.h"

namespace tilewire::ag_gemm {
namespace {

const TestCall kCall = OpTestTraits<Op>::small_call();

TEST(AgGemmFault, RanksThatDisagreeOnRowsAllHearBothListsAndWhatToPass) {
  const auto outcomes = run_spoiled<Op>([](Rank r, Arguments& args) {
    args.rows.counts = r.value == 2 ? std::vector<int64_t>{19, 4, 9, 11} : kCall.rows;
  });
  expect_everywhere(outcomes, ErrorKind::mismatch, {"20, 3, 9, 11", "19, 4, 9, 11", "rank 2", "pass rows="});
}

// Each rank takes the others to bring as many rows as itself.
TEST(AgGemmFault, UnequalRowsWithoutARowListAreOneCallThatIsNotTheSame) {
  const auto outcomes = run_thread_cluster({2, 2}, quick_options(), [&](Session& session) {
    Operation op(session);
    TestCall call{.rows = {5, 5, 5, 5}, .k = 16, .cols = {12}};
    if (session.rank() == Rank{3}) call.rows = {8, 8, 8, 8};
    CallChecker checker(call, session.rank().value);
    Arguments args = checker.arguments();
    args.rows = {};
    op.run(args);
  });
  expect_everywhere(outcomes, ErrorKind::mismatch,
                    {"call 1 is not the same on all ranks", "all_gather_matmul of 5 rows on each of 4 ranks",
                     "rank 3: all_gather_matmul of 8 rows on each of 4 ranks", "pass rows="});
}

TEST(AgGemmFault, AHandleWithARowListOfTheWrongLengthIsRefusedOnAllRanks) {
  for (const size_t counts : {3, 5}) {
    const auto outcomes = run_thread_cluster({2, 2}, quick_options(), [&](Session& session) {
      Operation op(session);
      op.agree({.rows = std::vector<int64_t>(counts, 8), .k = 16, .cols = {12}}, "");
    });
    expect_everywhere(outcomes, ErrorKind::invalid_argument, {std::to_string(counts) + " row counts", "4 ranks"});
  }
}

TEST(AgGemmFault, AResultThatAliasesABiasIsRefusedByName) {
  std::vector<float> shared(43 * 12 + 11);  // a result of 43 rows, whose last element is the first one of the bias
  const auto outcomes = run_spoiled<Op>([&](Rank r, Arguments& args) {
    if (r != Rank{3}) return;
    args.bias = {shared.data() + 43 * 12 - 1};
    args.make_results = [&shared](const Problem& p) {
      return Arguments::Results{{{shared.data(), p.total_rows(), p.cols[0], p.cols[0], 1, p.out_dtype}}, {}};
    };
  });
  expect_everywhere(outcomes, {"out overlaps bias"});
}

}  // namespace
}  // namespace tilewire::ag_gemm
