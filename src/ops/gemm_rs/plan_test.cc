#include "ops/gemm_rs/plan.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ops/gemm_rs/layout.h"
#include "schedule/topology_tables.h"
#include "testing/op_plan_test.h"

namespace tilewire::gemm_rs {
namespace {

using GemmRsPlanTest = FourRanksPlanTest;

Problem down_projection() { return {.rows = {128, 128, 128, 128}, .n = 2048, .k = 2048}; }

struct PlannedCase {
  static Problem problem() { return down_projection(); }
  static void change_own(Problem& problem, int32_t r) {
    problem.k = 100 * r;
    problem.out_dtype = r % 2 == 0 ? DataType::fp32 : DataType::bf16;
  }
  static PlanChoice other() {
    return {.chunk_rows = 48,
            .chunk_cols = 40,
            .window = 7,
            .is_fused = false,
            .workers = 5,
            .reduce_workers = 3,
            .cursors = {.load_ahead = 2, .publish_behind = 1}};
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(GemmRs, OpPlanTest, PlannedCase);

TEST_F(GemmRsPlanTest, ATextNamesEveryNumber) {
  const std::string text = PlannedCase::other().text();
  for (const char* part : {"chunks of 48 x 40", "a window of 7", "5 workers", "3 reduce workers", "2 pieces ahead"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  const std::string plan = make_plan(down_projection(), context()).explain();
  EXPECT_NE(plan.find("\n  multiply, then reduce: predicted"), std::string::npos) << plan;
}

TEST_F(GemmRsPlanTest, AGivenPlanThatCannotBeIsRefusedWithItsNumber) {
  const auto refusal = [&](const PlanChoice& c) {
    const std::string text = error_of([&] { check_choice(c, down_projection(), context()); });
    EXPECT_EQ(error_of([&] { check_plan(c, down_projection(), context()); }), text);
    return text;
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_NE(refusal({.chunk_rows = 1, .chunk_cols = 256, .cursors = {}}).find("2048 of them"), std::string::npos);
  // All chunks are made before any is added up, and under a window none behind the first few can be.
  EXPECT_NE(refusal({.window = 3, .is_fused = false, .cursors = {}}).find("window"), std::string::npos);
}

// Rows of a rank of the node, times the sources; node sums of half the rows of its rail out, and of its own rows in.
TEST_F(GemmRsPlanTest, MemoryIsThatOfTheSlotsAndAWindowBoundsAllButWhatIsSent) {
  const PlanContext x = context();
  PlanChoice choice{.chunk_rows = 32, .chunk_cols = 256, .cursors = {}};
  const int64_t row = 2048 * 2, records = x.arena.data_offset();
  EXPECT_EQ(layout_of(down_projection(), choice, x).end, records + (2 * 256 + 128 + 128) * row);
  Problem wide = down_projection();
  wide.wire_dtype = DataType::fp16;  // node sums are fp32
  EXPECT_EQ(layout_of(wide, choice, x).end, records + (2 * 256 + 2 * 128 + 2 * 128) * row);
  choice.window = 2;
  const int64_t slot = 32 * 256 * 2;
  EXPECT_EQ(layout_of(down_projection(), choice, x).end, records + (2 * 2 * 2 + 2) * slot + 128 * row);
}

TEST_F(GemmRsPlanTest, AnArenaTooSmallForASlotForEachChunkGetsAWindowAndATooSmallOneIsRefusedWithBothNumbers) {
  PlanContext x = context();
  x.arena.half_stride_bytes = 3 << 19;
  const Plan plan = make_plan(down_projection(), x);
  EXPECT_GT(plan.choice.window, 0);
  EXPECT_LE(plan.half_bytes, 3 << 19);
  x.arena.half_stride_bytes = 1 << 18;
  const std::string text = error_of([&] { make_plan(down_projection(), x); });
  EXPECT_NE(text.find("262144 bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("TILEWIRE_ARENA_RESERVE_BYTES"), std::string::npos) << text;
}

// More than 2^31 elements: sizes are 64-bit throughout.
TEST_F(GemmRsPlanTest, OffsetsBeyondFourGigabytesArePlannedInSixtyFourBits) {
  const Problem p{.rows = {24576, 24576, 24576, 24576}, .n = 28672, .k = 512};
  const PlanChoice choice{.chunk_rows = 1024, .chunk_cols = 2048, .cursors = {}};
  check_choice(choice, p, context(3));
  const ScheduleTables tables(p, choice, context(3));
  const Schedule s = tables.schedule(1);
  EXPECT_GT(s.buffers.received_begin, int64_t{1} << 32);
  int64_t most_written = 0;
  SendWork w;
  for (SendRole role(s); role.next(w);) {
    ASSERT_TRUE(fits(w.command));
    if (w.command.kind != CommandKind::write) continue;
    EXPECT_EQ(unpack(pack(w.command)), w.command);
    const Command c = unpack(pack(w.command));
    most_written = std::max(most_written, static_cast<int64_t>(c.dst_unit + c.units) * kWireUnitBytes);
  }
  EXPECT_EQ(most_written, layout_of(p, choice, context(3)).end);
}

TEST_F(GemmRsPlanTest, OneRankAndOneNodeArePlansLikeOthers) {
  for (const std::vector<int32_t>& layout : {std::vector<int32_t>{1}, {4}, {1, 1, 1, 1}}) {
    const TopologyTables topology = TopologyTables::from_layout(layout);
    PlanContext x = context();
    x.topology = topology.view();
    x.arena.flags.ranks = topology.view().ranks;
    Problem p = down_projection();
    p.rows.assign(static_cast<size_t>(topology.view().ranks), 128);
    const Plan plan = make_plan(p, x);
    EXPECT_GE(plan.predicted_s, plan.compute_s);
    EXPECT_GE(plan.predicted_s, plan.communication_s);
  }
}

}  // namespace
}  // namespace tilewire::gemm_rs
