#include "ops/ag_gemm/plan.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include "schedule/topology_tables.h"
#include "testing/plan_test_support.h"

namespace tilewire::ag_gemm {
namespace {

class PlanTest : public testing::Test {
 protected:
  PlanContext context(int32_t rank = 0) const {
    return {.topology = topology_.view(),
            .me = Rank{rank},
            .arena = {.flags = {.ranks = 4, .max_chunks = 64},
                      .half_stride_bytes = int64_t{64} << 30,
                      .user_stride_bytes = int64_t{1} << 30},
            .machine = {},
            .workers = 1};
  }
  static Problem up_projection() {
    return {.rows = {128, 128, 128, 128}, .k = 2048, .dtype = DataType::bf16, .cols = {2048}};
  }

  TopologyTables topology_ = TopologyTables::from_layout({2, 2});
};

TEST_F(PlanTest, ChunkSizeIsTheSameOnAllRanksWhateverTheirWeights) {
  for (int32_t r = 0; r < 4; ++r) {
    Problem p = up_projection();
    p.cols = {100 * r};
    EXPECT_EQ(make_plan(p, context(r)).choice.chunk_rows, make_plan(up_projection(), context(0)).choice.chunk_rows);
  }
}

TEST_F(PlanTest, EveryCandidateSaysWhyItLost) {
  const Plan plan = make_plan(up_projection(), context());
  int chosen_sizes = 0, chosen = 0, unfused = 0;
  for (const Candidate& c : plan.candidates) {
    EXPECT_FALSE(c.verdict.empty());
    const bool is_size = c.text.rfind("chunks of", 0) == 0;
    (is_size ? chosen_sizes : chosen) += c.verdict == "chosen";
    unfused += !c.choice.is_fused;
    if (is_size && c.verdict != "chosen") {
      EXPECT_EQ(c.verdict.rfind("communication alone", 0), 0u) << c.verdict;
    }
  }
  EXPECT_EQ(chosen_sizes, 1);
  EXPECT_EQ(chosen, 1);
  EXPECT_GT(unfused, 0);
  EXPECT_NE(plan.explain().find("predicted"), std::string::npos);
}

TEST_F(PlanTest, ExplanationHasReadableTimesAndNamesOfALoserWhatIsOtherAlone) {
  const Plan plan = make_plan(up_projection(), context());
  const std::string text = plan.explain();
  EXPECT_EQ(text.rfind(plan.choice.text() + "\npredicted ", 0), 0u) << text;
  EXPECT_NE(text.find("MiB of each half"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  gather, then multiply, "), std::string::npos) << text;
  EXPECT_EQ(text.find(": chosen"), std::string::npos) << text;
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

TEST_F(PlanTest, JsonGoesBothWays) {
  PlanChoice c{.chunk_rows = 48,
               .is_fused = false,
               .tile_rows = 7,
               .tile_cols = 9,
               .raster_rows = 3,
               .workers = 5,
               .push_workers = 4,
               .cursors = {.load_ahead = 2, .publish_behind = 1}};
  EXPECT_EQ(to_json(PlanChoice::from_json(to_json(c))), to_json(c));
  EXPECT_EQ(PlanChoice::from_json(to_json(c)).push_workers, 4);
  EXPECT_NE(c.text().find("4 push workers"), std::string::npos) << c.text();
}

TEST_F(PlanTest, JsonThatIsNoPlanIsNamed) {
  const std::string good = to_json(PlanChoice{});
  EXPECT_NE(error_of([] { PlanChoice::from_json("[1]"); }).find("not a JSON object"), std::string::npos);
  EXPECT_NE(error_of([] { PlanChoice::from_json(R"({"op":"gemm_rs"})"); }).find("op must be"), std::string::npos);
  EXPECT_NE(error_of([] { PlanChoice::from_json(R"({"op":"all_gather_matmul"})"); }).find("chunk_rows"),
            std::string::npos);
  std::string typo = good;
  typo.insert(typo.size() - 1, R"(,"tile_row":3)");
  EXPECT_NE(error_of([&] { PlanChoice::from_json(typo); }).find("tile_row"), std::string::npos);
  std::string wide = good;
  wide.replace(wide.find("128", wide.find("tile_rows")), 3, "99999999999");
  EXPECT_NE(error_of([&] { PlanChoice::from_json(wide); }).find("out of range"), std::string::npos);
}

TEST_F(PlanTest, AGivenPlanThatCannotBeIsRefusedWithItsNumber) {
  const auto refusal = [&](PlanChoice c) { return error_of([&] { check_plan(c, up_projection(), context()); }); };
  EXPECT_EQ(refusal({}), "");
  PlanChoice c;
  c.chunk_rows = 1;  // 128 chunks, the flag area has 64
  EXPECT_NE(refusal(c).find("128 chunks"), std::string::npos);
  c = {};
  c.tile_rows = 0;
  EXPECT_NE(refusal(c).find("tile_rows = 0"), std::string::npos);
  c = {};
  c.workers = 0;
  EXPECT_NE(refusal(c).find("workers = 0"), std::string::npos);
  c = {};
  c.push_workers = 0;
  EXPECT_NE(refusal(c).find("push_workers = 0"), std::string::npos);
  c.push_workers = 257;
  EXPECT_NE(refusal(c).find("push_workers = 257"), std::string::npos);
}

TEST_F(PlanTest, ARowListThatIsTooLongOrTooShortForTheRanksIsRefusedWithBothNumbers) {
  expect_one_row_count_for_each_of_four_ranks<Problem>(
      up_projection(), {[&](const Problem& p) { make_plan(p, context()); },
                        [&](const Problem& p) { check_plan(PlanChoice{}, p, context()); }});
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

TEST_F(PlanTest, AMatrixLargerThanTheReservedArenaIsRefusedWithBothNumbers) {
  PlanContext x = context();
  x.arena.half_stride_bytes = 1 << 20;
  const std::string text = error_of([&] { make_plan(up_projection(), x); });
  EXPECT_NE(text.find("1048576 bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("TILEWIRE_ARENA_RESERVE_BYTES"), std::string::npos);
}

}  // namespace
}  // namespace tilewire::ag_gemm
