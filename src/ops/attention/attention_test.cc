// Calls of ring attention on thread ranks: every element of out and lse against attention on one rank in double.
#include "ops/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "ops/attention/random_calls.h"
#include "testing/sanitized.h"

namespace tilewire::attention {
namespace {

using Layout = std::vector<int32_t>;

// For calls that compute for long under a sanitizer: the last rank to end is waited for.
Options patient_options() {
  Options options = test_options();
  options.deadline_s = 300;
  return options;
}

std::vector<int64_t> uneven_rows(int32_t ranks) {
  std::vector<int64_t> rows;
  for (int32_t r = 0; r < ranks; ++r) rows.push_back(r % 3 == 1 ? 0 : 20 + r * 31 % 90);
  return rows;
}

TEST(Attention, EveryWorldSizeAndLayoutGivesEveryElement) {
  for (const Layout& layout :
       part_if_sanitized<Layout>({{1}, {2}, {3}, {1, 1}, {2, 2}, {3, 1}, {1, 3}, {8}, {4, 4}, {1, 2, 1}})) {
    const int32_t ranks = ranks_of(layout);
    TestCall zigzag = call(zigzag_rows(199, ranks));
    zigzag.problem.placement = Placement::zigzag;
    zigzag.problem.head_dim = 128;
    run_and_check(layout, test_options(), {call(uneven_rows(ranks), false), call(uneven_rows(ranks)), zigzag});
  }
}

// B14: lengths that divide by nothing, among them one row in all.
TEST(Attention, SequencesOfAnyLengthGiveEveryElement) {
  ASSERT_EQ(dealt_evenly(2999, 4), (std::vector<int64_t>{750, 750, 750, 749}));
  for (const int64_t total : {1, 7, kIsSanitized ? 499 : 2999}) {
    std::vector<TestCall> calls;
    for (const Placement placement : {Placement::contiguous, Placement::zigzag}) {
      calls.push_back(call(placement == Placement::zigzag ? zigzag_rows(total, 4) : dealt_evenly(total, 4), true, 1));
      calls.back().problem.placement = placement;
    }
    run_and_check({2, 2}, patient_options(), calls);
  }
  run_and_check({2, 2}, patient_options(), {call({0, 0, 0, 0}), call({0, 5, 0, 0}), call({64, 128, 65, 1})});
}

// B51: keys and values of grouped heads are neither multiplied nor mixed up.
TEST(Attention, HeadsMayShareKeysInAnyNumber) {
  std::vector<TestCall> calls;
  for (const auto& [q_heads, kv_heads] : {std::pair{8, 8}, {8, 2}, {32, 8}, {28, 4}, {8, 1}}) {
    calls.push_back(call({9, 20, 0, 13}, true, q_heads, kv_heads));
    calls.back().problem.batch = 2;
    calls.back().is_bhsd = q_heads == 8;
  }
  run_and_check({2, 2}, test_options(), calls);
}

TEST(Attention, QueriesAndKeysMayBeOfDifferentLengths) {
  std::vector<TestCall> calls;
  for (const bool is_causal : {false, true}) {
    for (const auto& [rows, kv_rows] : std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>{
             {{50, 0, 30, 16}, {64, 0, 0, 0}}, {{3, 4, 5, 0}, {70, 90, 0, 65}}, {{5, 5, 5, 5}, {0, 0, 0, 0}}}) {
      calls.push_back(call(rows, is_causal));
      calls.back().problem.kv_rows = kv_rows;
    }
  }
  run_and_check({2, 2}, test_options(), calls);
}

// B10: contiguous causal ranks before the keys, and 96 queries over 64 keys: the first 32 see nothing.
TEST(Attention, RowsWithoutKeysAreZerosWithALogarithmOfMinusInfinity) {
  TestCall few_keys = call({48, 48, 0, 0});
  few_keys.problem.kv_rows = {0, 0, 32, 32};
  const auto outcomes = run_thread_cluster({2, 2}, test_options(), [&](Session& session) {
    OpCalls<Op> op(session);
    CallChecker checker(few_keys, session.rank().value);
    op.run(checker.arguments());
    checker.check();
    for (int64_t row = 0; session.rank() == Rank{0} && row < 32; ++row) {
      ASSERT_EQ(checker.lse().get(0, row), -std::numeric_limits<float>::infinity());
      for (int64_t d = 0; d < 128; ++d) ASSERT_EQ(checker.out().get(row, d), 0);
    }
  });
  EXPECT_EQ(first_error(outcomes), "");
}

// B11: merges of blocks whose sums are far apart either way, whichever rank has the large ones.
TEST(Attention, BlocksWhoseLogarithmsDifferByHundredsStayFinite) {
  std::vector<TestCall> calls;
  for (const double factor : {90.0, 200.0, -200.0}) {
    for (int32_t rank = 0; rank < 4; ++rank) {
      calls.push_back(call({70, 70, 70, 70}, rank % 2 == 0));
      calls.back().key_factor = factor;
      calls.back().factor_rank = rank;
    }
  }
  run_and_check({2, 2}, test_options(), calls);
}

TEST(Attention, DocumentsMayCrossRanksBeEmptyAndLeavePads) {
  std::vector<TestCall> calls;
  for (const bool is_causal : {false, true}) {
    for (const Placement placement : {Placement::contiguous, Placement::zigzag}) {
      TestCall packed =
          call(placement == Placement::zigzag ? zigzag_rows(250, 4) : std::vector<int64_t>{100, 0, 100, 50}, is_causal);
      packed.problem.placement = placement;
      packed.problem.documents = packed.problem.kv_documents = {0, 30, 30, 130, 131, 220};
      calls.push_back(packed);
      packed.problem.kv_documents = {0, 0, 64, 100, 180, 240};
      calls.push_back(packed);
      packed.problem.documents = packed.problem.kv_documents = {0};
      calls.push_back(packed);
    }
  }
  run_and_check({2, 2}, test_options(), calls);
}

TEST(Attention, PositionsMayBeGivenInAnyOrder) {
  Dice dice(41);
  std::vector<TestCall> calls;
  for (int round = 0; round < 4; ++round) {
    TestCall given = call({50, 0, 71, 90}, round % 2 == 0);
    given.problem.placement = Placement::given;
    given.problem.given = given.problem.given_kv = shuffled_positions(given.problem.rows, dice);
    if (round >= 2) given.problem.documents = given.problem.kv_documents = {0, 60, 150, 200};
    calls.push_back(given);
  }
  // Each rank has every fourth row.
  TestCall striped = call({20, 20, 20, 20});
  striped.problem.placement = Placement::given;
  for (int64_t r = 0; r < 4; ++r) {
    Positions own;
    for (int64_t i = 0; i < 20; ++i) own.push_back({4 * i + r, 1});
    striped.problem.given.push_back(own);
  }
  striped.problem.given_kv = striped.problem.given;
  calls.push_back(striped);
  run_and_check({2, 2}, test_options(), calls);
}

// Packed sequences are others in each step of a training: planning anew would take longer than the call.
TEST(Attention, OtherDocumentsAndPositionsTakeNoOtherPlan) {
  const auto outcomes = run_thread_cluster({2, 2}, test_options(), [&](Session& session) {
    OpCalls<Op> op(session);
    Dice dice(7);  // the same on all ranks
    std::string plan;
    for (const Placement placement : {Placement::contiguous, Placement::given}) {
      TestCall one = call({50, 0, 71, 90});
      one.problem.placement = placement;
      plan.clear();
      const size_t names = op.prepared_names(), texts = op.agreed_texts();
      for (int step = 0; step < 6; ++step) {
        one.problem.documents = one.problem.kv_documents = random_documents(211, static_cast<size_t>(1 + step), dice);
        if (step == 3) one.problem.documents = one.problem.kv_documents = {};
        if (placement == Placement::given) {
          one.problem.given = one.problem.given_kv = shuffled_positions(one.problem.rows, dice);
        }
        CallChecker checker(one, session.rank().value);
        const CallReport report = op.run(checker.arguments());
        checker.check();
        EXPECT_TRUE(plan.empty() || plan == report.plan_json) << plan << "\n" << report.plan_json;
        plan = report.plan_json;
        EXPECT_EQ(op.prepared_names(), names + 2) << "the plan that is asked for, and by its own name";
        EXPECT_EQ(op.agreed_texts(), texts + 1);
      }
    }
  });
  EXPECT_EQ(first_error(outcomes), "");
}

TEST(Attention, CountsMayBeExchanged) {
  const auto outcomes = run_thread_cluster({2, 2}, test_options(), [&](Session& session) {
    OpCalls<Op> op(session);
    TestCall zigzag = call(zigzag_rows(101, 4));
    zigzag.problem.placement = Placement::zigzag;
    for (const TestCall& one : {call({5, 0, 90, 7}), zigzag}) {
      for (const bool says_kv : {false, true}) {
        CallChecker checker(one, session.rank().value);
        Arguments args = checker.arguments();
        args.rows = {RowCounts::From::exchange, {}};
        args.kv_rows = says_kv ? args.rows : RowCounts{};
        op.run(args);
        checker.check();
      }
    }
  });
  EXPECT_EQ(first_error(outcomes), "");
}

// B12: nothing is rounded on the way, so errors do not grow with the number of ranks.
TEST(Attention, ErrorsDoNotGrowWithTheNumberOfRanks) {
  const auto error_on = [](int32_t ranks) {
    TestCall whole = call(dealt_evenly(512, ranks), false, 1);
    whole.problem.head_dim = 128;
    whole.problem.out_dtype = DataType::fp32;
    double largest = 0;
    std::mutex mutex;
    const auto outcomes = run_thread_cluster({ranks}, patient_options(), [&](Session& session) {
      OpCalls<Op> op(session);
      CallChecker checker(whole, session.rank().value);
      op.run(checker.arguments());
      const CallErrors errors = checker.compare();
      EXPECT_LE(errors.of_allowed, 1) << errors.worst;
      const std::lock_guard lock(mutex);
      largest = std::max(largest, errors.largest);
    });
    EXPECT_EQ(first_error(outcomes), "");
    return largest;
  };
  const double alone = error_on(1);
  EXPECT_GT(alone, 0);
  EXPECT_LE(error_on(8), 1.5 * alone);
}

std::vector<std::byte> bits_of(Session& session, OpCalls<Op>& op, const TestCall& one) {
  CallChecker checker(one, session.rank().value);
  op.run(checker.arguments());
  std::vector<std::byte> bits = checker.out().bytes();
  bits.insert(bits.end(), checker.lse().bytes().begin(), checker.lse().bytes().end());
  return bits;
}

// B76. Whatever is computed in which order on how many workers, a row's keys are added in one order.
TEST(Attention, BitsDependOnNeitherPlanNorTiming) {
  Options options = test_options();
  options.test_delay_us = 200;
  TestCall one = call({100, 90, 0, 150}, true, 4, 2);
  one.problem.out_dtype = DataType::fp32;
  std::vector<std::string> plans{""};
  for (const bool is_step_major : {false, true}) {
    for (const int64_t window : {0, 1}) {
      for (const int32_t tile_rows : {17, 64}) {
        plans.push_back(to_json(PlanChoice{.is_step_major = is_step_major,
                                           .chunk_rows = tile_rows == 17 ? 64 : 128,
                                           .window = window,
                                           .is_fused = window > 0 || tile_rows == 17,
                                           .tile_rows = tile_rows,
                                           .group_pairs = 2,
                                           .workers = tile_rows == 17 ? 3 : 1,
                                           .cursors = {.load_ahead = 2, .publish_behind = 1}}));
      }
    }
  }
  const auto outcomes = run_thread_cluster({2, 2}, options, [&](Session& session) {
    OpCalls<Op> op(session);
    const std::vector<std::byte> first = bits_of(session, op, one);
    for (const std::string& plan : plans) {
      TestCall same = one;
      same.plan_json = plan;
      for (int repeat = 0; repeat < 3; ++repeat) ASSERT_TRUE(bits_of(session, op, same) == first) << plan;
    }
  });
  EXPECT_EQ(first_error(outcomes), "");
}

TEST(Attention, SmallWindowsAndBothOrdersGiveEveryElement) {
  for (const Layout& layout : part_if_sanitized<Layout>({{4}, {2, 2}, {3, 1}, {1, 3}, {1, 1, 2}})) {
    std::vector<TestCall> calls;
    for (const bool is_step_major : {false, true}) {
      for (const int64_t window : {1, 2}) {
        calls.push_back(call({70, 130, 64, 9}, !is_step_major, 3, 3));
        calls.back().salt = static_cast<uint64_t>(calls.size());
        calls.back().plan_json = to_json(PlanChoice{.is_step_major = is_step_major,
                                                    .chunk_rows = 64,
                                                    .window = window,
                                                    .tile_rows = 50,
                                                    .group_pairs = 2,
                                                    .workers = 2,
                                                    .cursors = {}});
      }
    }
    run_and_check(layout, test_options(), calls);
  }
}

TEST(Attention, RandomCallsGiveEveryElement) {
  for (const Layout& layout : std::vector<Layout>{{2, 2}, {2, 1, 1}, {3}}) {
    Dice dice(static_cast<uint64_t>(layout.size()));
    std::vector<TestCall> calls;
    for (int i = 0; i < 12; ++i) calls.push_back(OpRandomCalls<Op>::call(layout, dice));
    run_and_check(layout, test_options(), calls);
  }
}

TEST(Attention, UnorderedNetworkWithCountedArrivalsGivesEveryElement) {
  for (const char* arrivals : {"proxy", "relay"}) {
    Options options = test_options();
    options.emulated_personality = "srd";
    options.emulated_latency_us = 50;
    options.test_delay_us = 100;
    options.ring_entries = 16;
    options.arrivals = arrivals;
    TestCall windowed = call({70, 20, 33, 64}, true, 12, 6);
    windowed.plan_json = to_json(PlanChoice{.chunk_rows = 64, .window = 1, .workers = 2, .cursors = {}});
    run_and_check({2, 2}, options, {windowed, call({70, 20, 33, 64}), windowed});
  }
}

// What nobody sees may be anything, beside what is seen too.
TEST(Attention, WhatIsMaskedMayBeNotANumber) {
  TestCall one = call({40, 40, 0, 0});
  one.problem.documents = one.problem.kv_documents = {0, 70};
  const auto outcomes = run_thread_cluster({2, 2}, test_options(), [&](Session& session) {
    OpCalls<Op> op(session);
    CallChecker checker(one, session.rank().value);
    Arguments args = checker.arguments();
    auto* keys = static_cast<uint16_t*>(args.k.data);
    auto* values = static_cast<uint16_t*>(args.v.data);
    for (int64_t i = 0; session.rank() == Rank{1} && i < 10 * 64; ++i) {
      keys[30 * 64 + i] = 0x7fc0;    // pads
      values[30 * 64 + i] = 0x7f80;  // infinity
    }
    op.run(args);
    checker.check();
  });
  EXPECT_EQ(first_error(outcomes), "");
}

}  // namespace
}  // namespace tilewire::attention
