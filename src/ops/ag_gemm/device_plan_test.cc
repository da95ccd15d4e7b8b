#include "ops/ag_gemm/device_plan.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <algorithm>
#include <set>

#include "ops/ag_gemm/ag_gemm.h"
#include "schedule/topology_tables.h"
#include "testing/plan_test_support.h"

namespace tilewire::ag_gemm {
namespace {

class FusedPlanTest : public testing::Test {
 protected:
  PlanContext context(int32_t rank = 0) const {
    PlanContext context{.topology = topology_.view(),
                        .me = Rank{rank},
                        .arena = {.flags = {.ranks = 4, .max_chunks = 1024},
                                  .half_stride_bytes = int64_t{64} << 30,
                                  .user_stride_bytes = int64_t{1} << 30},
                        .machine = kH200Machine,
                        .workers = kH200Workers};
    return context;
  }
  static Problem problem(int64_t rows, int64_t k, int64_t cols) {
    return {.rows = std::vector<int64_t>(4, rows / 4), .k = k, .dtype = DataType::bf16, .cols = {cols}};
  }

  TopologyTables topology_ = TopologyTables::from_layout({2, 2});
};

TEST_F(FusedPlanTest, ChunkSizeIsTheSameOnAllRanksWhateverTheirWeightsAndSms) {
  const int64_t chunk_rows = make_plan<FusedPlan>(problem(8192, 4096, 2048), context()).choice.choice.chunk_rows;
  for (int32_t r = 0; r < 4; ++r) {
    PlanContext x = context(r);
    x.workers = 16 + 20 * r;
    EXPECT_EQ(make_plan<FusedPlan>(problem(8192, 4096, 1000 * r), x).choice.choice.chunk_rows, chunk_rows);
  }
}

// One chunk a shard would be here soonest, and nothing could be multiplied before.
TEST_F(FusedPlanTest, ChunksAreSmallEnoughThatTilesBeginSoon) {
  for (const std::vector<int32_t>& widths : {std::vector<int32_t>{4}, std::vector<int32_t>{2, 2}}) {
    const TopologyTables topology = TopologyTables::from_layout(widths);
    PlanContext x = context();
    x.topology = topology.view();
    for (const int32_t ranks_per_gpu : {1, 4}) {
      x.machine = gpu_machine(ranks_per_gpu);
      const PlanOf<FusedPlan> plan = make_plan<FusedPlan>(problem(8192, 4096, 8192), x);
      EXPECT_LE(plan.choice.choice.chunk_rows, 256) << plan.explain();
      EXPECT_LT(plan.predicted_s, 0.7 * (plan.compute_s + plan.communication_s) + 0.3 * plan.compute_s);
    }
  }
}

TEST_F(FusedPlanTest, EveryFormIsACandidateFusedAndUnfusedAndSaysWhyItLost) {
  const PlanOf<FusedPlan> plan = make_plan<FusedPlan>(problem(8192, 4096, 4096), context());
  for (const FormNumbers& form : kFusedForms) {
    for (const bool is_fused : {true, false}) {
      EXPECT_TRUE(std::any_of(plan.candidates.begin(), plan.candidates.end(), [&](const CandidateOf<FusedPlan>& c) {
        return form_of(c.choice.choice) == &form && c.choice.choice.is_fused == is_fused && !c.verdict.empty();
      })) << form.name;
    }
  }
  EXPECT_TRUE(plan.choice.choice.is_fused);
  EXPECT_LT(plan.predicted_s, plan.compute_s + plan.communication_s);
  EXPECT_GE(plan.predicted_s, std::max(plan.compute_s, plan.communication_s));
  EXPECT_NE(plan.explain().find("\n  gather, then multiply, "), std::string::npos) << plan.explain();
}

// Rows that come late leave nothing to do beside them, and weights that are read again for each row block cost more than
// what little is hidden.
TEST_F(FusedPlanTest, UnfusedWinsWhereFusionReadsWeightsMoreOftenThanItHides) {
  PlanContext x = context();
  x.machine.node_bytes_per_s = x.machine.network_bytes_per_s = x.machine.copy_bytes_per_s = 1e15;
  x.machine.network_latency_s = 500e-6;
  const PlanOf<FusedPlan> plan = make_plan<FusedPlan>(problem(65536, 512, 65536), x);
  double fused_s = 1e9, unfused_s = 1e9;
  for (const CandidateOf<FusedPlan>& c : plan.candidates) {
    if (c.text.rfind("chunks of", 0) == 0) continue;
    double& best_s = c.choice.choice.is_fused ? fused_s : unfused_s;
    best_s = std::min(best_s, c.predicted_s);
  }
  EXPECT_EQ(plan.predicted_s, std::min(fused_s, unfused_s));
  EXPECT_EQ(plan.choice.choice.is_fused, fused_s <= unfused_s);
}

// A cluster is two SMs; those that push are taken from all in whole clusters, with one more that forwards.
TEST_F(FusedPlanTest, SmsThatOnlyPushAreLeftOutOfTheClusters) {
  const FusedPlan beside = make_plan<FusedPlan>(problem(8192, 8192, 8192), context()).choice;
  EXPECT_EQ(beside.push_ctas, 0);
  EXPECT_EQ(beside.choice.workers, kH200Workers);
  const FusedPlan apart = make_fused_plan(problem(8192, 8192, 8192), context(), 4).choice;
  EXPECT_EQ(apart.push_ctas, 4);
  EXPECT_EQ(apart.choice.workers, kH200Workers - 6);
  PlanContext x = context();
  x.workers = 4;
  const std::string text = error_of([&] { make_fused_plan(problem(8192, 8192, 8192), x, 4); });
  EXPECT_NE(text.find("no SM is left to compute with"), std::string::npos) << text;
  EXPECT_NE(text.find("4 SMs, 4 push"), std::string::npos) << text;
}

TEST_F(FusedPlanTest, WorkTakesTheTimeOfItsFormAndOfTheClock) {
  PlanContext x = context();
  const double plain_s = make_plan<FusedPlan>(problem(8192, 8192, 8192), x).compute_s;
  const double flops = 2.0 * 8192 * 8192 * 8192;
  EXPECT_GT(plain_s, flops / (kH200Workers * kH200Machine.worker_flops));
  EXPECT_LT(plain_s, 1.15 * flops / (kH200Workers * kH200Machine.worker_flops));
  x.machine.worker_flops /= 2;
  EXPECT_NEAR(make_plan<FusedPlan>(problem(8192, 8192, 8192), x).compute_s, 2 * plain_s, 0.01 * plain_s);
  x.machine = kH200Machine;
  x.machine.ranks_per_gpu = 4;  // they share its cache
  EXPECT_GT(make_plan<FusedPlan>(problem(8192, 8192, 8192), x).compute_s, 1.05 * plain_s);
}

// What the kernel walks is what reports count: who does it is another question than what is done.
TEST_F(FusedPlanTest, ReportsCountTheScheduleOfTheKernel) {
  const Problem p = problem(8192, 4096, 4096);
  const int64_t shard_bytes = 2048 * 4096 * 2;
  FusedPlan plan = make_plan<FusedPlan>(p, context()).choice;
  const CallReport several_nodes = Op::report(FusedTables(p, plan, context()).schedule(1));
  EXPECT_EQ(several_nodes.network_bytes, shard_bytes);
  EXPECT_EQ(several_nodes.node_bytes, 2 * shard_bytes);  // own rows, and those that enter the node here
  EXPECT_EQ(several_nodes.copy_bytes, shard_bytes);      // commands take them from the arena
  const TopologyTables one_node = TopologyTables::from_layout({4});
  PlanContext x = context();
  x.topology = one_node.view();
  for (const bool own_in_place : {true, false}) {
    plan.own_in_place = own_in_place;
    const CallReport report = Op::report(FusedTables(p, plan, x).schedule(1));
    EXPECT_EQ(report.network_bytes, 0);
    EXPECT_EQ(report.node_bytes, 3 * shard_bytes);
    EXPECT_LE(report.copy_bytes, own_in_place ? plan.choice.tile_rows * 2 * 4096 * 2 : shard_bytes);
    EXPECT_EQ(report.copy_bytes == shard_bytes, !own_in_place);
  }
}

TEST_F(FusedPlanTest, EveryCtaHasWorkOrIsNeededByTheRank) {
  const Problem p = problem(8192, 4096, 4096);
  const FusedPlan beside = make_plan<FusedPlan>(p, context()).choice, apart = make_fused_plan(p, context(), 4).choice;
  const FusedTables tables(p, beside, context()), with_apart(p, apart, context());
  EXPECT_EQ(tables.ctas(), kH200Workers);
  EXPECT_EQ(tables.schedule(1).push_workers, kH200Workers);
  EXPECT_EQ(with_apart.comm_ctas(), 6);
  EXPECT_EQ(with_apart.schedule(1).push_workers, 4);
  EXPECT_EQ(with_apart.schedule(1).forward_workers, 1);
  const FusedTables tiny(problem(4, 64, 8), beside, context());  // one tile, and a warp each for call, send and relay
  EXPECT_EQ(tiny.ctas(), 4);
}

// The CTAs of a cluster share columns of b, so its tiles lie in pairs of row blocks; an empty one makes them even.
TEST_F(FusedPlanTest, TilesOfAClusterAreOfTheSameColumns) {
  FusedPlan plan = make_plan<FusedPlan>(problem(8192, 8192, 8192), context()).choice;
  ASSERT_EQ(form_of(plan.choice)->cluster_row_tiles, 2);
  for (const int64_t rows : {4096, 4096 + 128, 4 * 33}) {
    for (const int32_t raster_rows : {1, 2, 3, 8}) {
      plan.choice.raster_rows = raster_rows;
      const FusedTables tables(problem(rows, 4096, 4096), plan, context());
      const Schedule s = tables.schedule(1);
      ASSERT_EQ(s.grid.row_blocks % 2, 0);
      EXPECT_EQ(std::set<int32_t>(s.row_order, s.row_order + s.grid.row_blocks).size(),
                static_cast<size_t>(s.grid.row_blocks));
      for (int64_t tile = 0; tile < s.grid.tiles(); tile += 2) {
        EXPECT_EQ(s.grid.position(tile).col_block, s.grid.position(tile + 1).col_block) << "tile " << tile;
      }
    }
  }
}

TEST_F(FusedPlanTest, JsonGoesBothWaysAndAGivenPlanIsTaken) {
  FusedPlan plan = make_plan<FusedPlan>(problem(8192, 4096, 4096), context()).choice;
  plan.choice.raster_rows = 3;
  plan.pace_clocks = 700;
  plan.own_in_place = false;
  EXPECT_EQ(to_json(FusedPlan::from_json(to_json(plan))), to_json(plan));
  const PlanOf<FusedPlan> given = make_plan<FusedPlan>(problem(8192, 4096, 4096), to_json(plan), context());
  EXPECT_EQ(to_json(given.choice), to_json(plan));
  EXPECT_GT(given.predicted_s, 0);
  plan.choice.tile_cols = 224;
  const std::string text = error_of([&] { make_plan<FusedPlan>(problem(8192, 4096, 4096), to_json(plan), context()); });
  EXPECT_NE(text.find("no kernel has such tiles: 128 x 256"), std::string::npos) << text;
}

TEST_F(FusedPlanTest, WhatHasNoRowsNoDepthNoColumnsOrNoRanksToWaitForIsPlanned) {
  EXPECT_GT(make_plan<FusedPlan>(problem(0, 4096, 4096), context()).predicted_s, 0);
  EXPECT_GT(make_plan<FusedPlan>(problem(8192, 4096, 0), context()).predicted_s, 0);
  EXPECT_GT(make_plan<FusedPlan>(problem(8192, 0, 4096), context()).predicted_s, 0);
  const TopologyTables alone = TopologyTables::from_layout({1});
  PlanContext x = context();
  x.topology = alone.view();
  const PlanOf<FusedPlan> plan =
      make_plan<FusedPlan>({.rows = {8192}, .k = 8192, .dtype = DataType::bf16, .cols = {8192}}, x);
  EXPECT_TRUE(plan.choice.choice.is_fused);
  EXPECT_EQ(plan.choice.choice.raster_rows, 16);
}

TEST_F(FusedPlanTest, ElementsOfThirtyTwoBitsAndWrongRowListsAreRefused) {
  Problem p = problem(8192, 4096, 4096);
  p.dtype = p.out_dtype = DataType::fp32;
  EXPECT_NE(error_of([&] { make_plan<FusedPlan>(p, context()); }).find("bf16 or fp16"), std::string::npos);
  expect_one_row_count_for_each_of_four_ranks<Problem>(
      problem(8192, 4096, 4096), {[&](const Problem& q) { make_plan<FusedPlan>(q, context()); },
                                  [&](const Problem& q) { check_plan(FusedPlan{}, q, context()); }});
}

}  // namespace
}  // namespace tilewire::ag_gemm
