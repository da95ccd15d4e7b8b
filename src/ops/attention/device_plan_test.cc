#include "ops/attention/device_plan.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <algorithm>

#include "testing/plan_test_support.h"

namespace tilewire::attention {
namespace {

class FusedAttentionPlanTest : public FourRanksPlanTest {
 protected:
  PlanContext context(int32_t rank = 0) const {
    PlanContext context = FourRanksPlanTest::context(rank);
    context.machine = kH200Machine;
    context.workers = kH200Workers;
    return context;
  }
  static Problem problem(int64_t rows, int64_t head_dim = 128) {
    return {.rows = std::vector<int64_t>(4, rows),
            .kv_rows = std::vector<int64_t>(4, rows),
            .batch = 1,
            .q_heads = 32,
            .kv_heads = 8,
            .head_dim = head_dim,
            .dtype = DataType::bf16,
            .is_causal = true,
            .placement = Placement::zigzag};
  }
  std::string refusal(const FusedPlan& plan, const Problem& p) const {
    const std::string text = error_of([&] { check_choice(plan, p, context()); });
    EXPECT_EQ(error_of([&] { make_plan<FusedPlan>(p, to_json(plan), context()); }), text);
    return text;
  }
};

TEST_F(FusedAttentionPlanTest, ChunksAndWindowAreTheSameOnAllRanksWhateverTheirSms) {
  const CallParts agreed = make_plan<FusedPlan>(problem(2048), context()).choice.agreed();
  for (int32_t r = 0; r < 4; ++r) {
    PlanContext x = context(r);
    x.workers = 16 + 20 * r;
    Problem p = problem(2048);
    p.out_dtype = r % 2 == 0 ? DataType::bf16 : DataType::fp16;
    const FusedPlan plan = make_plan<FusedPlan>(p, x).choice;
    EXPECT_EQ(plan.agreed(), agreed);
    EXPECT_EQ(plan.choice.workers, x.workers);
  }
}

TEST_F(FusedAttentionPlanTest, FusedAndUnfusedPlansAreCandidatesAndSayWhyTheyLost) {
  for (const int64_t head_dim : kHeadDims) {
    const PlanOf<FusedPlan> plan = make_plan<FusedPlan>(problem(4096, head_dim), context());
    for (const bool is_fused : {true, false}) {
      EXPECT_TRUE(std::any_of(plan.candidates.begin(), plan.candidates.end(), [&](const CandidateOf<FusedPlan>& c) {
        return c.choice.choice.is_fused == is_fused && !c.verdict.empty();
      }));
    }
    EXPECT_TRUE(plan.choice.choice.is_fused) << plan.explain();
    EXPECT_LT(plan.predicted_s, plan.compute_s + plan.communication_s);
    EXPECT_GE(plan.predicted_s, std::max(plan.compute_s, plan.communication_s));
    EXPECT_EQ(plan.choice.choice.chunk_rows % fused_form(head_dim).step, 0);
  }
}

// A rank's 8192 keys and values of 8 heads, 32 MiB, go to three peers.
TEST_F(FusedAttentionPlanTest, CopiesInANodeAreThoseOfAThreadForEachCta) {
  const TopologyTables node = TopologyTables::from_layout({4});
  PlanContext x = context();
  x.topology = node.view();
  x.workers = 32;
  const double moved_bytes = 3.0 * (32 << 20), communication_s = make_plan<FusedPlan>(problem(8192), x).communication_s;
  EXPECT_GT(communication_s, moved_bytes / (32 * 2e9));
  EXPECT_LT(communication_s, moved_bytes / (32 * 1e9));
}

// 4 x 8192 rows, 32 heads: 550 TFLOP of a GPU's 600 a second, causal, a quarter for each rank.
TEST_F(FusedAttentionPlanTest, ComputeTakesWhatWasMeasured) {
  const PlanOf<FusedPlan> plan = make_plan<FusedPlan>(problem(8192), context());
  const double flops = 32.0 * 32768 * 32768 / 2 * 4 * 128 / 4;
  EXPECT_NEAR(flops / plan.compute_s, 600e12, 60e12);
}

// Small chunks are looked for often, and the first of the large ones comes late. By what ranks 2+2 of one GPU took
// (docs/decisions/0099): those worse than the best size that was measured are predicted to be worse, and none is chosen.
TEST_F(FusedAttentionPlanTest, ChunksAreThoseThatWereMeasuredBest) {
  struct Measured {
    int64_t rows;
    bool is_causal;
    int64_t least, most;  // chosen: the best, or between it and the next one measured
    int64_t best;
    std::vector<int64_t> worse;
  };
  PlanContext x = context();
  x.machine = gpu_machine(4);
  x.machine.network_bytes_per_s = 12.5e9;
  x.workers = 32;
  for (const Measured& m :
       {Measured{2048, false, 512, 512, 512, {128, 256, 1024}}, Measured{2048, true, 256, 256, 256, {128, 512}},
        Measured{4096, false, 512, 1024, 512, {128, 256, 2048}}, Measured{4096, true, 512, 512, 512, {128, 256}},
        Measured{8192, false, 1024, 8192, 2048, {256, 512}}}) {
    Problem p = problem(m.rows);
    p.is_causal = m.is_causal;
    if (!m.is_causal) p.placement = Placement::contiguous;
    FusedPlan plan = make_plan<FusedPlan>(p, x).choice;
    const int64_t chosen = plan.choice.chunk_rows;
    EXPECT_TRUE(m.least <= chosen && chosen <= m.most) << m.rows << (m.is_causal ? " causal: " : ": ") << chosen;
    const auto predicted_s = [&](int64_t chunk_rows) {
      plan.choice.chunk_rows = chunk_rows;
      return make_plan<FusedPlan>(p, to_json(plan), x).predicted_s;
    };
    const double best_s = predicted_s(m.best);
    for (const int64_t chunk_rows : m.worse) {
      EXPECT_GT(predicted_s(chunk_rows), best_s) << m.rows << (m.is_causal ? " causal, " : ", ") << chunk_rows;
    }
  }
}

TEST_F(FusedAttentionPlanTest, ASmallArenaGivesAWindowAndFewWordsLargerChunks) {
  PlanContext x = context();
  const FusedPlan all = make_plan<FusedPlan>(problem(4096), x).choice;
  EXPECT_EQ(all.choice.window, 0);
  x.arena.half_stride_bytes = int64_t{48} << 20;
  const PlanOf<FusedPlan> windowed = make_plan<FusedPlan>(problem(4096), x);
  EXPECT_GT(windowed.choice.choice.window, 0);
  EXPECT_LE(windowed.half_bytes, x.arena.half_stride_bytes);
  x = context();
  x.arena.flags.max_chunks = 16;
  EXPECT_EQ(make_plan<FusedPlan>(problem(4096), x).choice.choice.chunk_rows, 2048);
  x.arena.flags.max_chunks = 2;
  EXPECT_NE(error_of([&] { make_plan<FusedPlan>(problem(4096), x); }).find("TILEWIRE_"), std::string::npos);
}

TEST_F(FusedAttentionPlanTest, JsonGoesBothWaysAndAGivenPlanIsTaken) {
  FusedPlan plan = make_plan<FusedPlan>(problem(4096), context()).choice;
  plan.choice.window = 3;
  plan.choice.group_pairs = 2;
  plan.choice.workers = 30;
  plan.pace_clocks = 900;
  EXPECT_EQ(to_json(FusedPlan::from_json(to_json(plan))), to_json(plan));
  const PlanOf<FusedPlan> given = make_plan<FusedPlan>(problem(4096), to_json(plan), context());
  EXPECT_EQ(to_json(given.choice), to_json(plan));
  EXPECT_NE(given.explain().find("900 clocks apart"), std::string::npos) << given.explain();
  EXPECT_GT(given.predicted_s, 0);
}

TEST_F(FusedAttentionPlanTest, WhatNoKernelHasIsRefusedByName) {
  const Problem p = problem(4096);
  const FusedPlan good = make_plan<FusedPlan>(p, context()).choice;
  EXPECT_EQ(refusal(good, p), "");
  const auto expect = [&](const std::string& text, const auto& change) {
    FusedPlan plan = good;
    change(plan.choice);
    EXPECT_NE(refusal(plan, p).find(text), std::string::npos) << refusal(plan, p) << "\nwithout: " << text;
  };
  expect("head after head", [](PlanChoice& c) { c.is_step_major = true; });
  expect("no kernel has such tiles: 128", [](PlanChoice& c) { c.tile_rows = 64; });
  expect("chunk_rows = 192, must be a multiple of 128", [](PlanChoice& c) { c.chunk_rows = 192; });
  expect("workers = 4", [](PlanChoice& c) { c.workers = 4; });
  expect("is_fused = false and a window", [](PlanChoice& c) {
    c.window = 2;
    c.is_fused = false;
  });
  PlanContext x = context();
  x.workers = kLeastCtas - 1;
  EXPECT_NE(error_of([&] { make_plan<FusedPlan>(p, x); }).find("no SM is left to compute with"), std::string::npos);
  expect_one_row_count_for_each_of_four_ranks<Problem>(
      p, {[&](const Problem& q) {
        make_plan<FusedPlan>({.rows = q.rows, .kv_rows = p.kv_rows, .head_dim = 64}, context());
      }});
}

TEST_F(FusedAttentionPlanTest, WhatHasNoRowsNoKeysNoHeadsOrOneRankIsPlanned) {
  Problem p = problem(0);
  EXPECT_GT(make_plan<FusedPlan>(p, context()).predicted_s, 0);
  p.rows = {100, 0, 7, 1};
  p.placement = Placement::contiguous;
  EXPECT_GT(make_plan<FusedPlan>(p, context()).predicted_s, 0);
  p.q_heads = p.kv_heads = 0;
  EXPECT_GT(make_plan<FusedPlan>(p, context()).predicted_s, 0);
  p = problem(4096);
  p.placement = Placement::given;
  EXPECT_GT(make_plan<FusedPlan>(p.shape(), context()).predicted_s, 0) << "where rows are is each call's own";
  const TopologyTables alone = TopologyTables::from_layout({1});
  PlanContext x = context();
  x.topology = alone.view();
  x.arena.flags.ranks = 1;
  p = problem(4096);
  p.rows = p.kv_rows = {4096};
  EXPECT_TRUE(make_plan<FusedPlan>(p, x).choice.choice.is_fused);
}

}  // namespace
}  // namespace tilewire::attention
