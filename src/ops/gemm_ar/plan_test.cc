#include "ops/gemm_ar/plan.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ops/gemm_ar/layout.h"
#include "schedule/topology_tables.h"
#include "testing/op_plan_test.h"

namespace tilewire::gemm_ar {
namespace {

using GemmArPlanTest = FourRanksPlanTest;

Problem down_projection() { return {.m = 512, .n = 2048, .k = 2048}; }

struct PlannedCase {
  static Problem problem() { return down_projection(); }
  static void change_own(Problem& problem, int32_t r) { problem.k = 100 * r; }
  static PlanChoice other() {
    return {.is_one_shot = true,
            .chunk_rows = 48,
            .chunk_cols = 40,
            .window = 7,
            .is_fused = false,
            .workers = 5,
            .reduce_workers = 3,
            .gather_behind = 9,
            .cursors = {.load_ahead = 2, .publish_behind = 1}};
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(GemmAr, OpPlanTest, PlannedCase);

struct PlannedRow : PlannedCase {
  static Problem problem() { return {.m = 1, .n = 2048, .k = 2048}; }
};
INSTANTIATE_TYPED_TEST_SUITE_P(GemmArOfOneRow, OpPlanTest, PlannedRow);

TEST_F(GemmArPlanTest, BothFormsAndTheUnfusedPlanAreCandidates) {
  const Plan plan = make_plan(down_projection(), context());
  EXPECT_TRUE(std::any_of(plan.candidates.begin(), plan.candidates.end(),
                          [](const Candidate& c) { return c.choice.is_one_shot; }));
  EXPECT_NE(plan.explain().find("\n  multiply, then reduce"), std::string::npos) << plan.explain();
}

TEST_F(GemmArPlanTest, AGivenPlanThatCannotBeIsRefusedWithItsNumber) {
  const auto refusal = [&](const PlanChoice& c) {
    const std::string text = error_of([&] { check_choice(c, down_projection(), context()); });
    EXPECT_EQ(error_of([&] { check_plan(c, down_projection(), context()); }), text);
    return text;
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_NE(refusal({.chunk_rows = 1, .chunk_cols = 256, .cursors = {}}).find("2048 of them"), std::string::npos);
  EXPECT_NE(refusal({.is_one_shot = true, .chunk_rows = 1, .chunk_cols = 512, .cursors = {}}).find("2048 of them"),
            std::string::npos);
  EXPECT_NE(refusal({.is_one_shot = true, .window = 1, .cursors = {}}).find("window"), std::string::npos);
  EXPECT_NE(refusal({.window = 3, .is_fused = false, .cursors = {}}).find("window"), std::string::npos);
}

// A result of wider elements than the sums is what a command has to hold.
TEST_F(GemmArPlanTest, AFinishedChunkThatNoCommandHoldsIsRefusedWithItsBytes) {
  const PlanChoice whole{.chunk_rows = 1 << 20, .chunk_cols = 1 << 20, .cursors = {}};
  Problem p{.m = 1 << 13, .n = 1 << 13, .k = 8};
  EXPECT_EQ(error_of([&] { check_choice(whole, p, context()); }), "");
  p.out_dtype = DataType::fp32;
  EXPECT_NE(error_of([&] { check_choice(whole, p, context()); }).find("a chunk of 268435456 bytes"), std::string::npos);
}

// Two shots: a quarter of the rows for each owner. Partial sums of two ranks for the two owners of a rail, their node
// sum for the other one, that of the other node for the own rows, and the results of all. One shot: all of it from each
// rank of the node and of the other node, and half of it on its way there.
TEST_F(GemmArPlanTest, MemoryIsThatOfTheSlotsAndAWindowBoundsAllButWhatIsSent) {
  const PlanContext x = context();
  PlanChoice choice{.chunk_rows = 32, .chunk_cols = 256, .cursors = {}};
  const int64_t row = 2048 * 2, records = x.arena.data_offset();
  EXPECT_EQ(layout_of(down_projection(), choice, x).end, records + (2 * 256 + 128 + 128 + 512) * row);
  Problem wide = down_projection();
  wide.out_dtype = DataType::fp32;
  EXPECT_EQ(layout_of(wide, choice, x).end, records + (2 * 256 + 128 + 128 + 2 * 512) * row);
  choice.window = 2;
  const int64_t slot = 32 * 256 * 2;
  // Two slots of each owner for results too, but for the own ones, of which there are 32.
  EXPECT_EQ(layout_of(down_projection(), choice, x).end,
            records + (2 * 2 * 2 + 2) * slot + 128 * row + (4 * 2 + 32) * slot);
  choice.window = 0;
  choice.is_one_shot = true;
  EXPECT_EQ(layout_of(wide, choice, x).end, records + (2 * 512 + 512 + 256) * row);
}

TEST_F(GemmArPlanTest, AnArenaTooSmallForASlotForEachChunkGetsAWindowAndATooSmallOneIsRefusedWithBothNumbers) {
  PlanContext x = context();
  x.arena.half_stride_bytes = 9 << 19;
  const Plan plan = make_plan(down_projection(), x);
  EXPECT_GT(plan.choice.window, 0);
  EXPECT_FALSE(plan.choice.is_one_shot);
  EXPECT_LE(plan.half_bytes, 9 << 19);
  x.arena.half_stride_bytes = 1 << 18;
  const std::string text = error_of([&] { make_plan(down_projection(), x); });
  EXPECT_NE(text.find("262144 bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("TILEWIRE_ARENA_RESERVE_BYTES"), std::string::npos) << text;
}

// More than 2^31 elements: sizes are 64-bit throughout.
TEST_F(GemmArPlanTest, OffsetsBeyondFourGigabytesArePlannedInSixtyFourBits) {
  const Problem p{.m = 98304, .n = 28672, .k = 512};
  for (const bool is_one_shot : {false, true}) {
    const PlanChoice choice{.is_one_shot = is_one_shot, .chunk_rows = 2048, .chunk_cols = 2048, .cursors = {}};
    check_choice(choice, p, context(3));
    const ScheduleTables tables(p, choice, context(3));
    const Schedule s = tables.schedule(1);
    int64_t most_written = 0;
    const auto see = [&](const auto& w) {
      ASSERT_TRUE(fits(w.command));
      if (w.command.kind != CommandKind::write) return;
      const Command c = unpack(pack(w.command));
      EXPECT_EQ(c, w.command);
      most_written = std::max(most_written, static_cast<int64_t>(c.dst_unit + c.units) * kWireUnitBytes);
    };
    if (is_one_shot) {
      one_shot::SendWork w;
      for (one_shot::SendRole role(s); role.next(w);) see(w);
    } else {
      SendWork w;
      for (SendRole role(s); role.next(w);) see(w);
    }
    EXPECT_GT(most_written, int64_t{1} << 32);
    EXPECT_LE(most_written, layout_of(p, choice, context(3)).end);
  }
}

TEST_F(GemmArPlanTest, OneRankAndOneNodeArePlansLikeOthers) {
  for (const std::vector<int32_t>& layout : {std::vector<int32_t>{1}, {4}, {1, 1, 1, 1}}) {
    const TopologyTables topology = TopologyTables::from_layout(layout);
    PlanContext x = context();
    x.topology = topology.view();
    x.arena.flags.ranks = topology.view().ranks;
    const Plan plan = make_plan(down_projection(), x);
    EXPECT_GE(plan.predicted_s, plan.compute_s);
    EXPECT_GE(plan.predicted_s, plan.communication_s);
  }
}

}  // namespace
}  // namespace tilewire::gemm_ar
