#include "ops/ag_gemm/plan.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include "testing/op_plan_test.h"

namespace tilewire::ag_gemm {
namespace {

using PlanTest = FourRanksPlanTest;

Problem up_projection() { return {.rows = {128, 128, 128, 128}, .k = 2048, .dtype = DataType::bf16, .cols = {2048}}; }

struct PlannedCase {
  static Problem problem() { return up_projection(); }
  static void change_own(Problem& problem, int32_t r) { problem.cols = {100 * r}; }
  static PlanChoice other() {
    return {.chunk_rows = 48,
            .is_fused = false,
            .tile_rows = 7,
            .tile_cols = 9,
            .raster_rows = 3,
            .workers = 5,
            .push_workers = 4,
            .cursors = {.load_ahead = 2, .publish_behind = 1}};
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(AgGemm, OpPlanTest, PlannedCase);

TEST_F(PlanTest, ExplanationHasReadableTimesAndNamesOfALoserWhatIsOtherAlone) {
  const Plan plan = make_plan(up_projection(), context());
  const std::string text = plan.explain();
  EXPECT_NE(text.find("MiB of each half"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  gather, then multiply, "), std::string::npos) << text;
  int digits = 0;  // before a point: what has five of them wants another unit
  for (const char c : text) {
    digits = c >= '0' && c <= '9' ? digits + 1 : 0;
    EXPECT_LT(digits, 5) << text;
  }
  EXPECT_EQ(difference_text("a, b 2, c", "a, b 1, c"), "b 2");
  EXPECT_EQ(difference_text("b 1", "a, b 12"), "b 1");
  EXPECT_EQ(difference_text("a, c", "a, b, c"), "a, c");
}

TEST_F(PlanTest, UnfusedWinsWhereNothingCanBeHidden) {
  Problem p = up_projection();
  p.cols = {0};
  EXPECT_GE(make_plan(p, context()).candidates.size(), 2u);
  PlanContext x = context();
  x.machine.step_s = 0;
  const Plan plan = make_plan(up_projection(), x);
  EXPECT_TRUE(plan.choice.is_fused);
  EXPECT_LT(plan.predicted_s, plan.compute_s + plan.communication_s);
}

TEST_F(PlanTest, ChunksForWhichThereAreTooFewFlagsAreRefusedWithTheirNumber) {
  PlanContext x = context();
  x.arena.flags.max_chunks = 64;
  EXPECT_EQ(error_of([&] { check_plan(PlanChoice{}, up_projection(), x); }), "");
  const PlanChoice small{.chunk_rows = 1, .cursors = {}};
  EXPECT_NE(error_of([&] { check_plan(small, up_projection(), x); }).find("128 chunks"), std::string::npos);
  EXPECT_NE(PlannedCase::other().text().find("4 push workers"), std::string::npos);
}

// More than 2^31 elements and bytes: sizes are 64-bit throughout.
TEST_F(PlanTest, OffsetsBeyondFourGigabytesArePlannedInSixtyFourBits) {
  Problem p{.rows = {40960, 40960, 40960, 40960}, .k = 16384, .dtype = DataType::bf16, .cols = {4096}};
  PlanChoice choice = make_plan(p, context()).choice;
  const ScheduleTables tables(p, choice, context(3));
  const Schedule s = tables.schedule(1);
  const int64_t last_row = p.total_rows() - 1;
  EXPECT_EQ(s.buffers.gathered_offset(last_row) - s.buffers.gathered_offset(0), last_row * 32768);
  SendWork w, last;
  for (SendRole role(s); role.next(w);) {
    ASSERT_TRUE(fits(w.command));
    if (w.command.kind == CommandKind::write) last = w;
  }
  const Command c = unpack(pack(last.command));
  EXPECT_EQ(static_cast<int64_t>(c.dst_unit + c.units) * kWireUnitBytes, s.buffers.gathered_offset(p.total_rows()));
}

}  // namespace
}  // namespace tilewire::ag_gemm
