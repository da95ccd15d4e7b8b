#include "ops/attention/plan.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <algorithm>
#include <string>
#include <vector>

#include "testing/op_plan_test.h"

namespace tilewire::attention {
namespace {

using AttentionPlanTest = FourRanksPlanTest;

struct PlannedCase {
  static Problem problem() {
    return {.rows = {512, 512, 512, 512},
            .kv_rows = {512, 512, 512, 512},
            .batch = 1,
            .q_heads = 16,
            .kv_heads = 4,
            .head_dim = 128,
            .dtype = DataType::bf16,
            .is_causal = true};
  }
  static void change_own(Problem& problem, int32_t r) {
    problem.out_dtype = r % 2 == 0 ? DataType::bf16 : DataType::fp32;
  }
  static PlanChoice other() {
    return {.is_step_major = true,
            .chunk_rows = 192,
            .window = 3,
            .is_fused = false,
            .tile_rows = 48,
            .group_pairs = 5,
            .workers = 7,
            .cursors = {.load_ahead = 2, .publish_behind = 1}};
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Attention, OpPlanTest, PlannedCase);

Problem layer() { return PlannedCase::problem(); }

TEST_F(AttentionPlanTest, BothOrdersAndTheUnfusedPlanAreCandidates) {
  const Plan plan = make_plan(layer(), context());
  EXPECT_TRUE(std::any_of(plan.candidates.begin(), plan.candidates.end(),
                          [](const Candidate& c) { return c.choice.is_step_major; }));
  EXPECT_NE(plan.explain().find("gather, then attend"), std::string::npos) << plan.explain();
  EXPECT_NE(plan.explain().find("source after source"), std::string::npos) << plan.explain();
}

TEST_F(AttentionPlanTest, TheSharedPartIsTheSameOfAnyRowsOnAnyRank) {
  Problem p = layer();
  p.rows = {100, 900, 0, 40};
  const CallParts expected = make_plan(p, context()).choice.agreed();
  for (int32_t r = 1; r < 4; ++r) EXPECT_EQ(make_plan(p, context(r)).choice.agreed(), expected);
}

// One head after the other takes slots of one head; where not even one fits, one source after the other does. The plan
// says why.
TEST_F(AttentionPlanTest, LessMemoryGivesAWindowAndThenTheOtherOrder) {
  const Problem p = layer();
  PlanContext x = context();
  const int64_t own = 4 * 512 * p.kv_row_bytes(), head = 3 * 512 * p.kv_row_bytes();
  const int64_t source = 4 * 512 * p.kv_row_bytes();
  x.arena.half_stride_bytes = x.arena.data_offset() + own + 2 * head;
  const Plan windowed = make_plan(p, x);
  EXPECT_FALSE(windowed.choice.is_step_major) << windowed.explain();
  EXPECT_EQ(windowed.choice.window, 2) << windowed.explain();
  EXPECT_LE(windowed.half_bytes, x.arena.half_stride_bytes);

  Problem few_heads = p;
  few_heads.rows = few_heads.kv_rows = {512, 512, 0, 0};
  few_heads.kv_heads = few_heads.q_heads = 1;
  x.arena.half_stride_bytes = x.arena.data_offset() + 512 * p.kv_row_bytes() + 600 * p.kv_row_bytes();
  const Plan by_source = make_plan(few_heads, x);
  EXPECT_TRUE(by_source.choice.is_step_major) << by_source.explain();
  EXPECT_NE(by_source.explain().find("head after head"), std::string::npos) << by_source.explain();
  EXPECT_NE(by_source.explain().find("bytes"), std::string::npos) << by_source.explain();

  x.arena.half_stride_bytes = x.arena.data_offset() + own + std::min(head, source) / 4;
  EXPECT_NE(error_of([&] { make_plan(p, x); }).find("TILEWIRE_ARENA_RESERVE_BYTES"), std::string::npos);
}

TEST_F(AttentionPlanTest, AGivenPlanThatCannotBeIsRefusedWithTheNumber) {
  const auto refusal = [&](PlanChoice c) { return error_of([&] { check_plan(c, layer(), context()); }); };
  const PlanChoice good{.chunk_rows = 128, .cursors = {}};
  EXPECT_EQ(refusal(good), "");
  const auto expect = [&](const std::string& text, const auto& change) {
    PlanChoice c = good;
    change(c);
    EXPECT_NE(refusal(c).find(text), std::string::npos) << refusal(c) << "\nwithout: " << text;
  };
  expect("chunk_rows = 100, must be a multiple of 64", [](PlanChoice& c) { c.chunk_rows = 100; });
  expect("is_fused = false and a window", [](PlanChoice& c) {
    c.window = 2;
    c.is_fused = false;
  });
  PlanContext few_words = context();
  few_words.arena.flags.max_chunks = 8;
  EXPECT_NE(error_of([&] { check_plan(good, layer(), few_words); }).find("16 chunks, the flag area has room for 8"),
            std::string::npos);
  PlanChoice windowed = good;
  windowed.chunk_rows = 512;
  windowed.window = 1;
  windowed.workers = 9;
  EXPECT_NE(error_of([&] { check_plan(windowed, layer(), few_words); }).find("36 words, the flag area has room for 32"),
            std::string::npos);
}

// A long sequence of real heads is planned in a moment.
TEST_F(AttentionPlanTest, WhatIsWalkedIsBoundedHoweverLongTheSequence) {
  Problem p = layer();
  p.rows = p.kv_rows = {32768, 32768, 32768, 32768};
  p.q_heads = 32;
  p.kv_heads = 8;
  const Plan plan = make_plan(p, context());
  EXPECT_GT(plan.predicted_s, 0);
  EXPECT_GE(plan.predicted_s, plan.compute_s);
  EXPECT_GE(plan.predicted_s, plan.communication_s);
}

}  // namespace
}  // namespace tilewire::attention
