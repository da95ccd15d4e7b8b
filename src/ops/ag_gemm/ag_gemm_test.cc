// Calls on thread ranks: every element, every shape class, every layout. Faults are in fault_test.cc and
// ops/op_fault_test.cc.
#include <gtest/gtest.h>

#include <random>

#include "ops/ag_gemm/call_fixture.h"

namespace tilewire::ag_gemm {
namespace {

// A call with `rows`, small and odd in all else.
TestCall odd_call(std::vector<int64_t> rows, int64_t k = 33, std::vector<int64_t> cols = {19}) {
  return {.rows = std::move(rows), .k = k, .cols = std::move(cols)};
}

TestCall with_salt(TestCall call, uint64_t salt) {
  call.salt = salt;
  return call;
}

TEST(AgGemm, EvenShardsOnTwoNodesOfTwoGiveEveryElement) {
  run_and_check({2, 2}, test_options(), {{.rows = {32, 32, 32, 32}, .k = 64, .cols = {48}}});
}

TEST(AgGemm, UnevenAndEmptyShardsGiveEveryElement) {
  run_and_check({2, 2}, test_options(),
                {odd_call({17, 1, 40, 3}), odd_call({0, 5, 0, 7}), odd_call({0, 0, 0, 9}), odd_call({0, 0, 0, 0}),
                 odd_call({130, 0, 1, 257})});
}

TEST(AgGemm, SizesOfZeroAndOneAreLegal) {
  run_and_check({2, 2}, test_options(),
                {odd_call({3, 3, 3, 3}, 0, {5}), odd_call({3, 3, 3, 3}, 1, {1}), odd_call({1, 1, 1, 1}, 1, {0}),
                 odd_call({2, 0, 1, 0}, 8, {0, 3}), odd_call({1, 1, 1, 1}, 0, {0})});
}

TEST(AgGemm, EveryWorldSizeAndLayoutGivesEveryElement) {
  const std::vector<std::vector<int32_t>> layouts = {{1},    {2},       {1, 1}, {3, 1},      {1, 3},
                                                     {2, 3}, {1, 1, 2}, {4},    {1, 2, 1, 2}};
  for (const auto& layout : layouts) {
    int64_t ranks = 0;
    for (const int32_t l : layout) ranks += l;
    std::vector<int64_t> rows;
    for (int64_t r = 0; r < ranks; ++r) rows.push_back((r * 37 + 11) % 50);
    SCOPED_TRACE(testing::PrintToString(layout));
    run_and_check(layout, test_options(), {odd_call(rows), odd_call(std::vector<int64_t>(ranks, 16), 16, {16})});
  }
}

TEST(AgGemm, EveryDtypeAndWeightLayoutGivesEveryElement) {
  std::vector<TestCall> calls;
  for (const DataType dtype : {DataType::bf16, DataType::fp16, DataType::fp32}) {
    for (const DataType out : {DataType::bf16, DataType::fp16, DataType::fp32}) {
      for (const bool is_n_by_k : {false, true}) {
        TestCall c = odd_call({9, 14, 2, 20}, 27, {13});
        c.dtype = dtype;
        c.out_dtype = out;
        c.is_n_by_k = is_n_by_k;
        c.has_bias = is_n_by_k;
        calls.push_back(c);
      }
    }
  }
  run_and_check({2, 2}, test_options(), calls);
}

TEST(AgGemm, WeightsThatShareOneGatherAndTheGatheredRowsComeBack) {
  TestCall c = odd_call({21, 8, 0, 30}, 40, {24, 0, 7, 300});
  c.wants_gathered = true;
  c.has_bias = true;
  run_and_check({2, 2}, test_options(), {c, with_salt(c, 5)});
}

TEST(AgGemm, UnorderedNetworkWithCountedArrivalsGivesEveryElement) {
  Options options = test_options();
  options.emulated_personality = "srd";
  options.emulated_latency_us = 50;
  std::vector<TestCall> calls;
  for (uint64_t i = 0; i < 20; ++i) calls.push_back(with_salt(odd_call({40, 1, 17, 33}, 48, {21}), i));
  run_and_check({2, 2}, options, calls);
}

TEST(AgGemm, ArrivalsPublishedByTheRelayRoleGiveEveryElement) {
  Options options = test_options();
  options.emulated_personality = "srd";
  options.emulated_latency_us = 50;
  options.test_delay_us = 100;
  options.ring_entries = 16;
  options.arrivals = "relay";
  std::vector<TestCall> calls;
  for (uint64_t i = 0; i < 20; ++i) calls.push_back(with_salt(odd_call({40, 1, 17, 33}, 48, {21}), i));
  run_and_check({2, 2}, options, calls);
}

// Inputs change in each call, so stale data of an earlier call would show.
TEST(AgGemm, RandomSequencesOfShapesOnOneArenaUnderRandomDelaysGiveEveryElement) {
  std::mt19937_64 random(20261129);
  const std::vector<std::vector<int32_t>> layouts = {{2, 2}, {2, 1}, {1, 1, 2}};
  for (const auto& layout : layouts) {
    int64_t ranks = 0;
    for (const int32_t l : layout) ranks += l;
    Options options = test_options();
    options.test_delay_us = 300;
    options.emulated_latency_us = 20;
    options.emulated_personality = random() % 2 == 0 ? "rc" : "srd";
    options.emulated_seed = static_cast<int64_t>(random() % 1000);
    std::vector<TestCall> calls;
    for (uint64_t i = 0; i < 12; ++i) {
      std::vector<int64_t> rows;
      for (int64_t r = 0; r < ranks; ++r) rows.push_back(random() % 3 == 0 ? 0 : static_cast<int64_t>(random() % 90));
      calls.push_back(
          with_salt(odd_call(rows, static_cast<int64_t>(random() % 60), {static_cast<int64_t>(random() % 40)}), i));
      calls.back().wants_gathered = random() % 4 == 0;
    }
    SCOPED_TRACE(testing::PrintToString(layout) + " " + options.emulated_personality);
    run_and_check(layout, options, calls);
  }
}

// The largest power of two that is taken for the number of the first call.
int64_t most_first_epoch() {
  int64_t most = 1;
  const auto is_allowed = [](int64_t first) {
    try {
      return Options::parse({{"TILEWIRE_FIRST_EPOCH", std::to_string(first)}}).first_epoch == first;
    } catch (const Error&) {
      return false;
    }
  };
  while (is_allowed(2 * most)) most *= 2;
  return most;
}

TEST(AgGemm, EpochsGoPastThirtyTwoBitsAndPastTheNarrowFieldOfTheImmediateUpToTheMostThatIsAllowed) {
  const std::vector<TestCall> calls = [] {
    std::vector<TestCall> c;
    for (uint64_t i = 0; i < 8; ++i) c.push_back(with_salt(odd_call({20, 3, 9, 11}), i));
    return c;
  }();
  for (const char* personality : {"rc", "srd"}) {
    for (const int64_t first :
         {(int64_t{1} << 32) - 3, (int64_t{1} << 11) - 3, (int64_t{1} << 10) - 3, most_first_epoch()}) {
      Options options = test_options();
      options.emulated_personality = personality;
      options.first_epoch = first;
      run_and_check({2, 2}, options, calls);
    }
  }
}

TEST(AgGemm, AGivenPlanWithCursorsAndTheUnfusedPlanGiveTheSameBits) {
  TestCall c = odd_call({70, 33, 0, 50}, 64, {80});
  c.out_dtype = DataType::bf16;
  PlanChoice choice{.chunk_rows = 16,
                    .is_fused = true,
                    .tile_rows = 32,
                    .tile_cols = 32,
                    .raster_rows = 2,
                    .workers = 2,
                    .cursors = {.load_ahead = 2, .publish_behind = 3}};
  std::vector<TestCall> calls = {c};
  for (const bool is_fused : {true, false}) {
    choice.is_fused = is_fused;
    calls.push_back(c);
    calls.back().plan_json = to_json(choice);
  }
  run_and_check({2, 2}, test_options(), calls);
}

TEST(AgGemm, TheArenaGrowsWhenAShapeNeedsMore) {
  Options options = test_options();
  options.arena_initial_bytes = 4096;
  run_and_check({2, 2}, options,
                {odd_call({2, 2, 2, 2}), odd_call({300, 300, 300, 300}, 64), odd_call({900, 1, 1, 900}, 64)});
}

// The worst element of repeated runs: slot-free gathering is deterministic, so any difference is a bug.
TEST(AgGemm, RepeatedCallsUnderDelaysAreBitwiseEqual) {
  Options options = test_options();
  options.test_delay_us = 200;
  options.workers = 2;
  const TestCall c = odd_call({25, 60, 13, 40}, 96, {65});
  const auto outcomes = run_thread_cluster({2, 2}, options, [&](Session& session) {
    Operation op(session);
    CallChecker first(c, session.rank().value);
    op.run(first.arguments());
    for (int i = 0; i < 30; ++i) {
      CallChecker again(c, session.rank().value);
      op.run(again.arguments());
      ASSERT_EQ(std::memcmp(again.out(0).view().data, first.out(0).view().data, 138 * 65 * 4), 0) << "repeat " << i;
    }
  });
  EXPECT_EQ(first_error(outcomes), "");
}

// A call on data whose sums are not exact in fp32, so that any other order of the additions shows.
std::vector<std::byte> inexact_result(Session& session, Operation& op, DataType dtype, const std::string& plan_json) {
  const TestCall c{.rows = {70, 33, 0, 50}, .k = 300, .cols = {81}, .dtype = dtype, .plan_json = plan_json};
  CallChecker checker(c, session.rank().value);
  NormalNumbers normal(session.rank());
  const OwnedMatrix a = matrix_of(c.rows[session.rank().value], c.k, dtype, normal);
  const OwnedMatrix b = matrix_of(c.k, c.cols[0], dtype, normal);
  Arguments args = checker.arguments();
  args.a = a.view();
  args.b = {b.view()};
  op.run(args);
  return checker.out(0).bytes();
}

TEST(AgGemm, BitsOfInexactSumsDependNeitherOnThePlanNorOnTiming) {
  Options options = test_options();
  options.test_delay_us = 50;
  std::vector<std::string> plans = {""};
  for (const int64_t chunk_rows : {8, 33, 70}) {
    for (const auto& [tile_rows, tile_cols] : {std::pair{128, 256}, std::pair{7, 9}, std::pair{32, 16}}) {
      for (const bool is_fused : {true, false}) {
        plans.push_back(to_json(PlanChoice{.chunk_rows = chunk_rows,
                                           .is_fused = is_fused,
                                           .tile_rows = tile_rows,
                                           .tile_cols = tile_cols,
                                           .raster_rows = is_fused ? 2 : 1,
                                           .workers = is_fused ? 2 : 1,
                                           .cursors = {.load_ahead = is_fused ? 1 : 0, .publish_behind = 1}}));
      }
    }
  }
  expect_same_bits<Op>(options, {DataType::bf16, DataType::fp32}, plans, inexact_result);
}

TEST(AgGemm, AnInputInTheUserAreaIsSentFromWhereItIs) {
  const auto outcomes = run_thread_cluster({2, 2}, test_options(), [](Session& session) {
    Operation op(session);
    for (uint64_t salt = 0; salt < 4; ++salt) {
      const TestCall c = with_salt({.rows = {64, 10, 0, 33}, .k = 32, .cols = {40}, .wants_gathered = true}, salt);
      CallChecker checker(c, session.rank().value);
      Arguments args = checker.arguments();
      const int64_t bytes = args.a.rows * args.a.cols * 2;
      std::byte* placed = session.allocate_user(bytes);
      if (bytes > 0) std::memcpy(placed, args.a.data, bytes);
      args.a.data = placed;
      const CallReport report = op.run(args);
      EXPECT_EQ(report.copy_bytes, 0) << "the shard was copied";
      checker.check();
      session.free_user(placed);
    }
  });
  EXPECT_EQ(first_error(outcomes), "");
}

// Each shard crosses each pair of nodes once, and no rank pushes more than its own shard and what it forwards, however
// many push workers share it.
void expect_optimal_volume(int32_t push_workers) {
  const std::vector<int64_t> rows = {40, 24, 8, 56, 32};
  const PlanChoice choice{
      .chunk_rows = 8, .tile_rows = 16, .tile_cols = 16, .push_workers = push_workers, .cursors = {}};
  const auto outcomes = run_thread_cluster({3, 2}, test_options(), [&](Session& session) {
    Operation op(session);
    TestCall call{.rows = rows, .k = 64, .cols = {16}};
    call.plan_json = to_json(choice);
    CallChecker checker(call, session.rank().value);
    const CallReport report = op.run(checker.arguments());
    checker.check();
    EXPECT_EQ(PlanChoice::from_json(report.plan_json).push_workers, push_workers);
    const int32_t me = session.rank().value;
    const int64_t own = rows[me] * 64 * 2;
    // Rank 0 takes in both... ranks of node 1 enter node 0 at local ranks 0 and 1; ranks of node 0 enter node 1 at l
    // mod 2.
    const std::vector<int64_t> entered = {rows[3], rows[4], 0, rows[0] + rows[2], rows[1]};
    const int64_t peers = me < 3 ? 2 : 1;
    EXPECT_EQ(report.copy_bytes, own);
    EXPECT_EQ(report.node_bytes, peers * (own + entered[me] * 64 * 2));
    EXPECT_EQ(report.network_bytes, own);
    const uint64_t records = 16 * session.proxy()->totals().peers.size();
    EXPECT_EQ(session.proxy()->totals().data_bytes(), static_cast<uint64_t>(own) + records);
  });
  EXPECT_EQ(first_error(outcomes), "");
}

TEST(AgGemm, VolumeIsOptimal) {
  for (const int32_t push_workers : {1, 2, 3}) {
    SCOPED_TRACE(push_workers);
    expect_optimal_volume(push_workers);
  }
}

TEST(AgGemm, RowCountsCanBeExchangedAtEachCall) {
  const auto outcomes = run_thread_cluster({2, 2}, test_options(), [](Session& session) {
    Operation op(session);
    for (uint64_t salt = 0; salt < 5; ++salt) {
      std::vector<int64_t> rows;
      for (int64_t r = 0; r < 4; ++r) rows.push_back((r * 13 + static_cast<int64_t>(salt) * 7) % 30);
      CallChecker checker(with_salt(odd_call(rows), salt), session.rank().value);
      Arguments args = checker.arguments();
      args.rows = {RowCounts::From::exchange, {}};
      op.run(args);
      checker.check();
    }
  });
  EXPECT_EQ(first_error(outcomes), "");
}

}  // namespace
}  // namespace tilewire::ag_gemm
