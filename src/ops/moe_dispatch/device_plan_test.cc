#include "ops/moe_dispatch/device_plan.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <algorithm>
#include <string>

#include "ops/moe_dispatch/device_limits.h"
#include "schedule/topology_tables.h"
#include "testing/plan_test_support.h"

namespace tilewire::moe_dispatch {
namespace {

class FusedDispatchPlanTest : public testing::Test {
 protected:
  PlanContext context(int32_t rank = 0) const {
    return {.topology = nodes_.view(),
            .me = Rank{rank},
            .arena = {.flags = {.ranks = 4, .max_chunks = 4096},
                      .half_stride_bytes = int64_t{64} << 30,
                      .user_stride_bytes = int64_t{1} << 30},
            .machine = kH200Machine,
            .workers = kH200Workers};
  }
  static Problem problem(int64_t tokens, int64_t h, int64_t cols, int32_t experts = 64, int32_t top_k = 8) {
    Problem p{.rank_of_expert = {}, .h = h, .top_k = top_k};
    for (int32_t e = 0; e < experts; ++e) p.rank_of_expert.push_back(e % 4);
    p.most_tokens = p.planned_tokens = tokens;
    p.most_rows = 4 * tokens * top_k;
    p.cols = cols;
    return p;
  }
  static FusedPlan best(const Problem& problem, const PlanContext& x) {
    return make_plan<FusedPlan>(problem, x).choice;
  }

  TopologyTables nodes_ = TopologyTables::from_layout({2, 2});
};

TEST_F(FusedDispatchPlanTest, TheSharedPartIsTheSameOnAllRanksWhateverTheirColumnsAndSms) {
  const CallParts agreed = best(problem(4096, 7168, 2048), context()).agreed();
  for (int32_t r = 0; r < 4; ++r) {
    PlanContext x = context(r);
    x.workers = 17 + 20 * r;
    const FusedPlan plan = best(problem(4096, 7168, 100 + 1000 * r), x);
    EXPECT_EQ(plan.agreed(), agreed);
    EXPECT_EQ(plan.choice.workers, 16 + 20 * r) << "whole clusters";
  }
}

TEST_F(FusedDispatchPlanTest, EachCandidateSaysWhyItLostAndOneOfThemIsUnfused) {
  const PlanOf<FusedPlan> plan = make_plan<FusedPlan>(problem(4096, 7168, 2048), context());
  for (const bool is_fused : {true, false}) {
    EXPECT_TRUE(std::any_of(plan.candidates.begin(), plan.candidates.end(), [&](const CandidateOf<FusedPlan>& c) {
      return c.choice.choice.is_fused == is_fused && !c.verdict.empty();
    }));
  }
  EXPECT_NE(form_of(plan.choice), nullptr);
  EXPECT_GE(plan.predicted_s, std::max(plan.compute_s, plan.communication_s));
}

TEST_F(FusedDispatchPlanTest, RanksThatShareACacheGetTilesThatReadLess) {
  const auto form = [&](int32_t ranks_per_gpu, int64_t tokens) {
    PlanContext x = context();
    x.machine = gpu_machine(ranks_per_gpu);
    x.workers = kH200Workers / ranks_per_gpu;
    return std::string(form_of(best(problem(tokens, 7168, 2048, 32), x))->name);
  };
  EXPECT_EQ(form(1, 8192), PingPong128x128::kName);
  EXPECT_EQ(form(4, 1024), Cooperative128x256InLine::kName);
}

// Rows of the first round are moved before the tiles, those of later rounds beside them.
TEST_F(FusedDispatchPlanTest, OnOneNodeTilesBeginBehindTheRowsOfTheFirstRound) {
  const TopologyTables node = TopologyTables::from_layout({4});
  PlanContext x = context();
  x.topology = node.view();
  x.machine.node_bytes_per_s = 1e10;
  const Problem p = problem(8192, 7168, 2048);
  FusedPlan plan = best(p, x);
  const auto of_rounds = [&](int64_t rounds) {
    plan.choice.block_tokens = 8192 / rounds;
    plan.choice.window = 8;
    return check_plan(plan, p, x);
  };
  const double linked_s = 8192.0 * 8 * 7168 * 2 * 3 / 4 / x.machine.node_bytes_per_s;
  const PlanOf<FusedPlan> one = of_rounds(1), four = of_rounds(4);
  EXPECT_GT(one.predicted_s, linked_s + one.compute_s);
  EXPECT_LT(four.predicted_s, linked_s + 0.5 * four.compute_s);
}

// Calls of 2 nodes x 2 ranks on one H200 over a wire of 12.5 GB/s (moe_dispatch_gpu_bench --trials), in microseconds.
struct Measured {
  int64_t tokens, h, cols;
  int32_t experts;
  int64_t block_tokens;
  int32_t pieces;
  bool local_first, is_fused;
  double us;
};
constexpr Measured kMeasured[] = {
    {1024, 7168, 2048, 32, 512, 1, true, true, 2951},    {1024, 7168, 2048, 32, 512, 4, false, true, 2966},
    {1024, 7168, 2048, 32, 512, 1, true, false, 3136},   {1024, 7168, 2048, 128, 1024, 1, true, true, 3466},
    {1024, 7168, 2048, 128, 1024, 4, false, true, 3825}, {4096, 4096, 1536, 32, 2048, 1, true, true, 4084},
    {512, 4096, 1536, 32, 512, 1, true, true, 709},      {512, 4096, 1536, 32, 512, 4, false, true, 890},
};

TEST_F(FusedDispatchPlanTest, PredictionsAreNearWhatWasMeasuredAndOrderPlansAlike) {
  PlanContext x = context();
  x.machine = gpu_machine(4);
  x.machine.network_bytes_per_s = 12.5e9;
  x.workers = 32;
  const auto predicted_us = [&](const Measured& m) {
    const Problem p = problem(m.tokens, m.h, m.cols, m.experts);
    FusedPlan plan = best(p, x);
    plan.choice.block_tokens = m.block_tokens;
    plan.choice.window = m.tokens / m.block_tokens;
    plan.choice.pieces = m.pieces;
    plan.choice.local_first = m.local_first;
    plan.choice.is_fused = m.is_fused;
    EXPECT_STREQ(form_of(plan)->name, Cooperative128x256InLine::kName);
    return check_plan(plan, p, x).predicted_s * 1e6;
  };
  for (const Measured& a : kMeasured) {
    const double a_us = predicted_us(a);
    EXPECT_GT(a_us, 0.7 * a.us) << a.tokens << " tokens, " << a.experts << " experts";
    EXPECT_LT(a_us, 1.3 * a.us) << a.tokens << " tokens, " << a.experts << " experts";
    for (const Measured& b : kMeasured) {
      if (a.tokens != b.tokens || a.experts != b.experts || a.us > 0.95 * b.us) continue;
      EXPECT_LT(a_us, predicted_us(b)) << a.tokens << " tokens, " << a.experts << " experts";
    }
  }
}

TEST_F(FusedDispatchPlanTest, NoCtaCountsASecondPartOfTheTokensWhereThereAreFewerRoundsThanCtas) {
  for (const int32_t ctas : {4, 32, 132}) {
    for (const int32_t rounds : {0, 1, 3, 32, 131, 132, 500}) {
      for (const int32_t tokens : {1, 16, 17, 100000}) {
        const int32_t parts = parts_of_round(rounds, tokens, ctas);
        EXPECT_GE(parts, 1);
        EXPECT_LE(parts * rounds, std::max(ctas, rounds)) << "there is room for the counts of so many";
        EXPECT_LE(parts, (tokens + kLeastPartTokens - 1) / kLeastPartTokens);
      }
    }
  }
  EXPECT_EQ(parts_of_round(1, 8192, 132), 132);
}

// A weight is read once a round: rounds are worth it where rows take longer than weights.
TEST_F(FusedDispatchPlanTest, FewTokensGoInOneRoundAndManyInSeveral) {
  EXPECT_GE(best(problem(64, 7168, 2048), context()).choice.block_tokens, 64);
  EXPECT_LT(best(problem(32768, 7168, 2048, 8, 2), context()).choice.block_tokens, 32768);
}

TEST_F(FusedDispatchPlanTest, FewRowsTakeAsLongAsTheirWeightsAreReadOnceARound) {
  const Problem p = problem(64, 7168, 2048);
  FusedPlan plan = best(p, context());
  const double once_s = check_plan(plan, p, context()).compute_s;
  EXPECT_GT(once_s, 16 * 7168 * 2048 * 2 / 4.8e12) << "16 weights at the rate that the memory is sold with";
  plan.choice.block_tokens = 16;
  EXPECT_GT(check_plan(plan, p, context()).compute_s, 3.5 * once_s);
}

TEST_F(FusedDispatchPlanTest, ExpertsWithoutRowsCostNothingAndBlocksThatAreNotFullCostAsFullOnes) {
  const auto compute_s = [&](int64_t tokens) {
    return make_plan<FusedPlan>(problem(tokens, 7168, 2048), context()).compute_s;
  };
  EXPECT_LT(compute_s(1), 0.5 * compute_s(64)) << "8 rows for 16 experts";
  const double full_s = 2.0 * 512 * 8 * 7168 * 2048 / (kH200Workers * kH200Machine.worker_flops);
  EXPECT_GT(compute_s(512), 1.2 * full_s) << "256 rows for each, on the average: two blocks and often a third";
}

TEST_F(FusedDispatchPlanTest, ARoundWaitsForItsSlotAndAnUnfusedOneForAllOfIt) {
  const Problem p = problem(8192, 7168, 2048);
  FusedPlan plan = best(p, context());
  plan.choice.block_tokens = 1024;
  plan.choice.local_first = true;
  const auto predicted_s = [&](int64_t window, bool is_fused) {
    plan.choice.window = window;
    plan.choice.is_fused = is_fused;
    return check_plan(plan, p, context()).predicted_s;
  };
  EXPECT_GT(predicted_s(1, true), 1.1 * predicted_s(2, true));
  EXPECT_GT(predicted_s(1, false), predicted_s(1, true));
  const PlanOf<FusedPlan> one_behind_the_other = check_plan(plan, p, context());
  EXPECT_GT(predicted_s(1, false), 0.99 * (one_behind_the_other.compute_s + one_behind_the_other.communication_s));
}

TEST_F(FusedDispatchPlanTest, WhatMovesCostsMoreOverASlowerNetwork) {
  PlanContext slow = context();
  slow.machine.network_bytes_per_s /= 10;
  const Problem p = problem(8192, 7168, 2048);
  const PlanOf<FusedPlan> fast = make_plan<FusedPlan>(p, context()), plan = make_plan<FusedPlan>(p, slow);
  EXPECT_GT(plan.communication_s, 5 * fast.communication_s);
  EXPECT_GT(plan.predicted_s, plan.communication_s);
}

TEST_F(FusedDispatchPlanTest, ACountAloneTakesNextToNoMemory) {
  Problem p = problem(0, 7168, 2048);
  p.counts_only = true;
  const PlanOf<FusedPlan> plan = make_plan<FusedPlan>(p, context());
  EXPECT_LT(plan.half_bytes, 1 << 20);
  EXPECT_EQ(plan.choice.choice.workers, kH200Workers);
}

// The planner's sum and the walk of all roles see the same call.
TEST_F(FusedDispatchPlanTest, ThePredictionIsNearWhatTheRolesTakeOnAClock) {
  const Problem p = problem(2048, 2048, 1408);
  const PlanOf<FusedPlan> plan = make_plan<FusedPlan>(p, context());
  const double walked_s = simulate(p, plan.choice, nodes_, context(), false).seconds;
  EXPECT_GT(walked_s, plan.compute_s * 0.9);
  EXPECT_LT(plan.predicted_s, 2 * walked_s);
  EXPECT_GT(plan.predicted_s, walked_s / 2);
}

TEST_F(FusedDispatchPlanTest, JsonGoesBothWaysAndPlansThatCannotBeAreRefusedByName) {
  const Problem p = problem(600, 512, 264);
  FusedPlan other = best(p, context());
  other.choice.raster_rows = 3;
  other.choice.workers = 6;
  const FusedPlan read = FusedPlan::from_json(to_json(other));
  EXPECT_EQ(to_json(read), to_json(other));
  EXPECT_EQ(check_plan(read, p, context()).choice.choice.workers, 6);
  const auto reason = [&](const auto& change) {
    FusedPlan plan = other;
    change(plan.choice);
    return error_of([&] { check_plan(plan, p, context()); });
  };
  EXPECT_NE(reason([](PlanChoice& c) { c.tile_rows = 100; }).find("no kernel has such tiles"), std::string::npos);
  EXPECT_NE(reason([](PlanChoice& c) { c.workers = 5; }).find("no grid has 5 CTAs"), std::string::npos);
  const auto refusal = [&](const auto& change) {
    Problem changed = p;
    change(changed);
    return error_of([&] { make_plan<FusedPlan>(changed, context()); });
  };
  EXPECT_NE(refusal([](Problem& q) { q.out_dtype = DataType::fp32; }).find("dtype of their own"), std::string::npos);
  EXPECT_NE(refusal([](Problem& q) { q.rank_of_expert[1] = 4; }).find("experts[1] = 4"), std::string::npos);
}

}  // namespace
}  // namespace tilewire::moe_dispatch
