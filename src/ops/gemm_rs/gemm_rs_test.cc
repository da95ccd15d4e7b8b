// Calls on thread ranks: every element, every shape class, every layout. Roundings are in rounding_test.cc, faults in
// fault_test.cc and ops/op_fault_test.cc.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "executor/simulation_test_support.h"
#include "ops/gemm_rs/call_fixture.h"

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

TEST(GemmRs, SizesOfZeroAndOneAreLegal) {
  const Layout layout = {2, 2};
  std::vector<TestCall> calls;
  for (const std::vector<int64_t>& k : {std::vector<int64_t>{0, 0, 0, 0}, {1, 1, 1, 1}, {0, 5, 0, 1}}) {
    for (const int64_t n : {0, 1, 8}) {
      calls.push_back({.layout = layout, .rows = {3, 3, 3, 3}, .k = k, .n = n, .has_bias = true});
      calls.push_back({.layout = layout, .rows = {0, 1, 0, 0}, .k = k, .n = n});
    }
  }
  run_and_check(test_options(), calls);
}

TEST(GemmRs, EveryWorldSizeAndLayoutGivesEveryElement) {
  const std::vector<Layout> layouts = {{1}, {2}, {1, 1}, {3, 1}, {1, 3}, {2, 3}, {1, 1, 2}, {4}, {1, 2, 1, 2}};
  for (const Layout& layout : layouts) {
    std::vector<int64_t> rows;
    for (int64_t r = 0; r < ranks_of(layout); ++r) rows.push_back((r * 37 + 11) % 50);
    SCOPED_TRACE(testing::PrintToString(layout));
    const std::vector<int64_t> even(rows.size(), 16);
    run_and_check(test_options(), {odd_call(layout, rows), odd_call(layout, even, 16)});
  }
}

TEST(GemmRs, EveryDtypeOfInputWireAndResultGivesEveryElement) {
  std::vector<TestCall> calls;
  constexpr DataType kAll[] = {DataType::bf16, DataType::fp16, DataType::fp32};
  for (const DataType dtype : kAll) {
    for (const DataType wire : kAll) {
      for (const DataType out : kAll) {
        TestCall c = odd_call({2, 2}, {9, 14, 2, 20}, 13);
        c.dtype = dtype;
        c.out_dtype = out;
        c.wire_dtype = wire;
        c.is_n_by_k = out == DataType::fp16;
        c.has_bias = out != DataType::bf16;
        c.has_residual = out != DataType::fp16;
        calls.push_back(c);
      }
    }
    calls.push_back(odd_call({2, 2}, {9, 14, 2, 20}));
    calls.back().dtype = dtype;  // and its own wire
  }
  run_and_check(test_options(), calls);
}

TEST(GemmRs, InputsInAnyOrderInMemoryGiveEveryElement) {
  std::vector<TestCall> calls;
  for (const bool is_a_transposed : {false, true}) {
    for (const bool is_n_by_k : {false, true}) {
      calls.push_back(odd_call({2, 1}, {30, 7, 12}, 40));
      calls.back().is_a_transposed = is_a_transposed;
      calls.back().is_n_by_k = is_n_by_k;
    }
  }
  run_and_check(test_options(), calls);
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

TEST(GemmRs, UnorderedNetworkWithCountedArrivalsGivesEveryElement) {
  for (const char* arrivals : {"proxy", "relay"}) {
    Options options = test_options();
    options.emulated_personality = "srd";
    options.emulated_latency_us = 50;
    options.test_delay_us = 100;
    options.ring_entries = 16;
    options.arrivals = arrivals;
    std::vector<TestCall> calls;
    for (uint64_t i = 0; i < 10; ++i) {
      const PlanChoice choice{.chunk_rows = 8, .chunk_cols = 16, .window = i % 2 == 0 ? 2 : 0, .cursors = {}};
      calls.push_back(with_plan(with_salt(odd_call({2, 2}, {40, 1, 17, 33}, 21), i), choice));
    }
    run_and_check(options, calls);
  }
}

// Inputs change in each call, so stale data of an earlier call would show.
TEST(GemmRs, RandomSequencesOfShapesOnOneArenaUnderRandomDelaysGiveEveryElement) {
  std::mt19937_64 random(20261130);
  for (const Layout& layout : {Layout{2, 2}, Layout{2, 1}, Layout{1, 1, 2}, Layout{2, 3}}) {
    Options options = test_options();
    options.test_delay_us = 300;
    options.emulated_latency_us = 20;
    options.emulated_personality = random() % 2 == 0 ? "rc" : "srd";
    options.emulated_seed = static_cast<int64_t>(random() % 1000);
    std::vector<TestCall> calls;
    for (uint64_t i = 0; i < 10; ++i) {
      std::vector<int64_t> rows;
      for (int32_t r = 0; r < ranks_of(layout); ++r) {
        rows.push_back(random() % 3 == 0 ? 0 : static_cast<int64_t>(random() % 90));
      }
      calls.push_back(with_salt(odd_call(layout, rows, static_cast<int64_t>(random() % 40)), i));
      calls.back().has_bias = random() % 2 == 0;
      calls.back().has_residual = random() % 2 == 0;
      const PlanChoice choice{.chunk_rows = 16,
                              .chunk_cols = 24,
                              .window = static_cast<int64_t>(1 + random() % 3),
                              .workers = static_cast<int32_t>(1 + random() % 2),
                              .reduce_workers = static_cast<int32_t>(1 + random() % 2),
                              .cursors = {.load_ahead = 2, .publish_behind = 2}};
      if (random() % 2 == 0) calls.back().plan_json = to_json(choice);
    }
    SCOPED_TRACE(testing::PrintToString(layout) + " " + options.emulated_personality);
    run_and_check(options, calls);
  }
}

TEST(GemmRs, EpochsGoPastThirtyTwoBitsAndPastTheNarrowFieldOfTheImmediate) {
  std::vector<TestCall> calls;
  for (uint64_t i = 0; i < 8; ++i) calls.push_back(with_salt(odd_call({2, 2}, {20, 3, 9, 11}), i));
  for (const char* personality : {"rc", "srd"}) {
    for (const int64_t first : {(int64_t{1} << 32) - 3, (int64_t{1} << 11) - 3, (int64_t{1} << 10) - 3}) {
      Options options = test_options();
      options.emulated_personality = personality;
      options.first_epoch = first;
      run_and_check(options, calls);
    }
  }
}

TEST(GemmRs, TheArenaGrowsWhenAShapeNeedsMore) {
  Options options = test_options();
  options.arena_initial_bytes = 4096;
  run_and_check(options, {odd_call({2, 2}, {2, 2, 2, 2}), odd_call({2, 2}, {300, 300, 300, 300}, 64),
                          odd_call({2, 2}, {900, 1, 1, 900}, 64)});
}

// A call on data whose sums are not exact in fp32, so that any other order of the additions shows.
std::vector<std::byte> inexact_result(Session& session, Operation& op, DataType dtype, const std::string& plan_json) {
  const TestCall c{.layout = {2, 2},
                   .rows = {70, 33, 0, 50},
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

TEST(GemmRs, BitsOfInexactSumsDependNeitherOnThePlanNorOnTiming) {
  Options options = test_options();
  options.test_delay_us = 50;
  std::vector<std::string> plans = {"", ""};
  for (const int64_t window : {0, 1, 3}) {
    for (const auto& [rows, cols] : {std::pair{70, 81}, std::pair{33, 32}, std::pair{16, 40}}) {
      for (const bool is_fused : {true, false}) {
        if (!is_fused && window > 0) continue;
        plans.push_back(to_json(PlanChoice{.chunk_rows = rows,
                                           .chunk_cols = cols,
                                           .window = window,
                                           .is_fused = is_fused,
                                           .workers = is_fused ? 2 : 1,
                                           .reduce_workers = is_fused ? 1 : 2,
                                           .cursors = {.load_ahead = is_fused ? 1 : 0, .publish_behind = 1}}));
      }
    }
  }
  expect_same_bits<Op>(options, {DataType::bf16, DataType::fp16, DataType::fp32}, plans, inexact_result);
}

TEST(GemmRs, ThirtyRepeatsUnderDelaysAreBitwiseEqual) {
  Options options = test_options();
  options.test_delay_us = 200;
  options.workers = 2;
  expect_same_bits<Op>(options, {DataType::bf16}, std::vector<std::string>(30, ""), inexact_result);
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
