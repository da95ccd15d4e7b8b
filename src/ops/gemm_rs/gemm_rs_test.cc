// Calls on thread ranks: what only this op has. All else about calls is in ops/reduction_calls_test.cc, roundings in
// ops/reduction_rounding_test.cc, faults in fault_test.cc and ops/op_fault_test.cc.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "ops/gemm_rs/call_fixture.h"
#include "testing/simulation_test_support.h"

namespace tilewire::gemm_rs {
namespace {

TEST(GemmRs, EvenRowsOnTwoNodesOfTwoGiveEveryElement) {
  run_and_check(test_options(), {{.layout = {2, 2}, .rows = {32, 32, 32, 32}, .k = {64, 64, 64, 64}, .n = 48}});
}

TEST(GemmRs, UnevenAndEmptyShardsGiveEveryElement) {
  const Layout layout = {2, 2};
  run_and_check(test_options(),
                {odd_call(layout, {17, 1, 40, 3}), odd_call(layout, {0, 5, 0, 7}), odd_call(layout, {0, 0, 0, 9}),
                 odd_call(layout, {0, 0, 0, 0}), odd_call(layout, {130, 0, 1, 257})});
}

// A view of every second column, and of rows from the last to the first.
TEST(GemmRs, AResidualMayBeAnyView) {
  const auto outcomes = run_thread_cluster({2, 1}, test_options(), [](Session& session) {
    Operation op(session);
    TestCall call = odd_call({2, 1}, {5, 4, 6}, 7);
    call.has_residual = true;
    CallChecker checker(call, session.rank().value);
    Arguments args = checker.arguments();
    const MatrixView seen = *args.residual;
    OwnedMatrix wide(seen.rows, 14, DataType::fp32);
    int64_t first_row = 0;
    for (int32_t r = 0; r < session.rank().value; ++r) first_row += call.rows[static_cast<size_t>(r)];
    for (int64_t r = 0; r < seen.rows; ++r) {
      for (int64_t n = 0; n < 7; ++n) wide.set(seen.rows - 1 - r, 2 * n, residual_value(first_row + r, n));
    }
    auto* last_row = static_cast<float*>(wide.view().data) + (seen.rows - 1) * 14;
    args.residual = MatrixView{last_row, seen.rows, 7, -14, 2, DataType::fp32};
    op.run(args);
    checker.check();
  });
  EXPECT_EQ(first_error(outcomes), "");
}

TEST(GemmRs, RowsAreDealtOutEvenlyUnlessAListSaysOtherwise) {
  const auto outcomes = run_thread_cluster({2, 2}, test_options(), [](Session& session) {
    Operation op(session);
    for (const std::vector<int64_t>& rows : {std::vector<int64_t>{3, 3, 2, 2}, {1, 0, 0, 0}, {8, 8, 8, 8}}) {
      CallChecker checker(odd_call({2, 2}, rows), session.rank().value);
      Arguments args = checker.arguments();
      args.rows = {};
      op.run(args);
      checker.check();
    }
  });
  EXPECT_EQ(first_error(outcomes), "");
}

// Each element of the sum crosses from each node to another once: the (nodes - 1) / nodes of the matrix that others own,
// shared by the ranks of the node.
TEST(GemmRs, VolumeIsOptimal) {
  const std::vector<int64_t> rows = {40, 24, 8, 56, 32};
  const auto outcomes = run_thread_cluster({3, 2}, test_options(), [&](Session& session) {
    Operation op(session);
    CallChecker checker(odd_call({3, 2}, rows, 64), session.rank().value);
    const CallReport report = op.run(checker.arguments());
    checker.check();
    // Rank 2's rows enter at local rank 0 of the other node, as do those of rank 0.
    const std::vector<int64_t> rails = {rows[3], rows[4], 0, rows[0] + rows[2], rows[1]};
    const auto me = static_cast<size_t>(session.rank().value);
    const int64_t sent = rails[me] * 64 * 2, kept = (rails[me] + rows[me]) * 64 * 2;
    EXPECT_EQ(report.network_bytes, sent);
    EXPECT_EQ(report.copy_bytes, kept + sent);
    EXPECT_EQ(report.node_bytes, 160 * 64 * 2 - kept);
    const uint64_t records = 16 * session.proxy()->totals().peers.size();
    EXPECT_EQ(session.proxy()->totals().data_bytes(), static_cast<uint64_t>(sent) + records);
  });
  EXPECT_EQ(first_error(outcomes), "");
}

}  // namespace
}  // namespace tilewire::gemm_rs
