#include "ops/gemm_rs/device_plan.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <algorithm>
#include <utility>

#include "schedule/topology_tables.h"
#include "testing/plan_test_support.h"

namespace tilewire::gemm_rs {
namespace {

class FusedReductionPlanTest : public testing::Test {
 protected:
  PlanContext context(int32_t rank = 0) const {
    PlanContext context{.topology = topology_.view(),
                        .me = Rank{rank},
                        .arena = {.flags = {.ranks = 4, .max_chunks = 2048},
                                  .half_stride_bytes = int64_t{64} << 30,
                                  .user_stride_bytes = int64_t{1} << 30},
                        .machine = kH200Machine,
                        .workers = kH200Workers};
    return context;
  }
  static Problem problem(int64_t rows, int64_t n, int64_t k) {
    return {.rows = std::vector<int64_t>(4, rows / 4), .n = n, .k = k};
  }

  TopologyTables topology_ = TopologyTables::from_layout({2, 2});
};

TEST_F(FusedReductionPlanTest, ChunksWindowAndBandsAreTheSameOnAllRanksWhateverTheirDepthsAndSms) {
  const CallParts agreed = make_plan<FusedPlan>(problem(8192, 4096, 2048), context()).choice.agreed();
  for (int32_t r = 0; r < 4; ++r) {
    PlanContext x = context(r);
    x.workers = 16 + 20 * r;
    Problem p = problem(8192, 4096, 1000 * r);
    p.out_dtype = r % 2 == 0 ? DataType::fp32 : DataType::fp16;
    EXPECT_EQ(make_plan<FusedPlan>(p, x).choice.agreed(), agreed);
  }
}

// Four ranks share a GPU, as two nodes whose ports have 100 Gbit/s.
TEST_F(FusedReductionPlanTest, WhereRanksShareAGpuItChoosesWhatWasMeasuredToBeFastest) {
  PlanContext x = context();
  x.machine = gpu_machine(4);
  x.machine.network_bytes_per_s = 12.5e9;
  x.workers = 32;
  for (const auto& [p, chunk_cols] : {std::pair{problem(8192, 8192, 8192), 512},
                                      {problem(8192, 4096, 4096), 512},
                                      {problem(2048, 4096, 3584), 256}}) {
    const FusedPlan plan = make_plan<FusedPlan>(p, x).choice;
    EXPECT_TRUE(plan.choice.is_fused);
    EXPECT_EQ(plan.choice.chunk_rows, 256);
    EXPECT_EQ(plan.choice.chunk_cols, chunk_cols);
    EXPECT_EQ(plan.choice.reduce_workers, 4);
    EXPECT_EQ(plan.choice.own_behind, 8);
    EXPECT_EQ(form_of(plan), &FusedPlan::kForms[0]);
  }
}

TEST_F(FusedReductionPlanTest, EveryFormIsACandidateFusedAndUnfusedAndSaysWhyItLost) {
  const PlanOf<FusedPlan> plan = make_plan<FusedPlan>(problem(8192, 8192, 4096), context());
  for (const FormNumbers& form : FusedPlan::kForms) {
    for (const bool is_fused : {true, false}) {
      EXPECT_TRUE(std::any_of(plan.candidates.begin(), plan.candidates.end(), [&](const CandidateOf<FusedPlan>& c) {
        return form_of(c.choice) == &form && c.choice.choice.is_fused == is_fused && !c.verdict.empty();
      })) << form.name;
    }
  }
  EXPECT_TRUE(plan.choice.choice.is_fused);
  EXPECT_LT(plan.predicted_s, plan.compute_s + plan.communication_s);
  EXPECT_GE(plan.predicted_s, std::max(plan.compute_s, plan.communication_s));
}

TEST_F(FusedReductionPlanTest, FewChunksInTheFlagAreaMakeThemLargerAndASmallArenaAWindow) {
  PlanContext x = context();
  const PlanChoice all = make_plan<FusedPlan>(problem(8192, 8192, 4096), x).choice.choice;
  EXPECT_EQ(all.window, 0);
  x.arena.flags.max_chunks = 150;
  const PlanChoice few = make_plan<FusedPlan>(problem(8192, 8192, 4096), x).choice.choice;
  EXPECT_GT(few.chunk_rows * few.chunk_cols, all.chunk_rows * all.chunk_cols);
  x = context();
  x.arena.half_stride_bytes = int64_t{128} << 20;
  const PlanOf<FusedPlan> windowed = make_plan<FusedPlan>(problem(8192, 8192, 4096), x);
  EXPECT_GT(windowed.choice.choice.window, 0);
  EXPECT_LE(windowed.half_bytes, x.arena.half_stride_bytes);
  x.arena.flags.max_chunks = 2;
  const std::string text = error_of([&] { make_plan<FusedPlan>(problem(8192, 8192, 4096), x); });
  EXPECT_NE(text.find("TILEWIRE_"), std::string::npos) << text;
}

TEST_F(FusedReductionPlanTest, JsonGoesBothWaysAndAGivenPlanIsTaken) {
  FusedPlan plan = make_plan<FusedPlan>(problem(8192, 4096, 4096), context()).choice;
  plan.choice.band_blocks = 3;
  plan.choice.own_behind = 5;
  plan.choice.reduce_workers = 7;
  plan.tile_rows = FusedPlan::kForms[2].work_rows();
  plan.tile_cols = FusedPlan::kForms[2].work_cols();
  EXPECT_EQ(to_json(FusedPlan::from_json(to_json(plan))), to_json(plan));
  const PlanOf<FusedPlan> given = make_plan<FusedPlan>(problem(8192, 4096, 4096), to_json(plan), context());
  EXPECT_EQ(to_json(given.choice), to_json(plan));
  EXPECT_GT(given.predicted_s, 0);
  plan.tile_cols = 224;
  std::string text = error_of([&] { make_plan<FusedPlan>(problem(8192, 4096, 4096), to_json(plan), context()); });
  EXPECT_NE(text.find("no kernel has such tiles"), std::string::npos) << text;
  plan = given.choice;
  plan.choice.is_fused = false;
  plan.choice.window = 4;
  text = error_of([&] { make_plan<FusedPlan>(problem(8192, 4096, 4096), to_json(plan), context()); });
  EXPECT_NE(text.find("window > 0"), std::string::npos) << text;
}

TEST_F(FusedReductionPlanTest, WhatHasNoRowsNoDepthNoColumnsOrOneRankIsPlanned) {
  EXPECT_GT(make_plan<FusedPlan>(problem(0, 4096, 4096), context()).predicted_s, 0);
  EXPECT_GT(make_plan<FusedPlan>(problem(8192, 0, 4096), context()).predicted_s, 0);
  EXPECT_GT(make_plan<FusedPlan>(problem(8192, 4096, 0), context()).predicted_s, 0);
  const TopologyTables alone = TopologyTables::from_layout({1});
  PlanContext x = context();
  x.topology = alone.view();
  const PlanChoice one = make_plan<FusedPlan>({.rows = {8192}, .n = 8192, .k = 8192}, x).choice.choice;
  EXPECT_TRUE(one.is_fused);
  EXPECT_EQ(one.own_behind, 0);
}

TEST_F(FusedReductionPlanTest, TooFewSmsElementsOfThirtyTwoBitsAndWrongRowListsAreRefused) {
  PlanContext x = context();
  x.workers = 3;
  std::string text = error_of([&] { make_plan<FusedPlan>(problem(8192, 4096, 4096), x); });
  EXPECT_NE(text.find("no SM is left to compute with"), std::string::npos) << text;
  Problem p = problem(8192, 4096, 4096);
  p.dtype = p.wire_dtype = DataType::fp32;
  text = error_of([&] { make_plan<FusedPlan>(p, context()); });
  EXPECT_NE(text.find("bf16 or fp16"), std::string::npos) << text;
  expect_one_row_count_for_each_of_four_ranks<Problem>(
      problem(8192, 4096, 4096), {[&](const Problem& q) { make_plan<FusedPlan>(q, context()); },
                                  [&](const Problem& q) { check_plan(FusedPlan{}, q, context()); }});
}

}  // namespace
}  // namespace tilewire::gemm_rs
