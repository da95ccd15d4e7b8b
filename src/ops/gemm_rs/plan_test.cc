#include "ops/gemm_rs/plan.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "ops/gemm_rs/layout.h"
#include "schedule/topology_tables.h"
#include "testing/plan_test_support.h"

namespace tilewire::gemm_rs {
namespace {

class GemmRsPlanTest : public FourRanksPlanTest {
 protected:
  static Problem down_projection() { return {.rows = {128, 128, 128, 128}, .n = 2048, .k = 2048}; }
};

TEST_F(GemmRsPlanTest, TheSharedPartIsTheSameOnAllRanksWhateverTheirDepthResultAndWorkers) {
  const PlanChoice expected = make_plan(down_projection(), context()).choice;
  for (int32_t r = 0; r < 4; ++r) {
    Problem p = down_projection();
    p.k = 100 * r;
    p.out_dtype = r % 2 == 0 ? DataType::fp32 : DataType::bf16;
    PlanContext x = context(r);
    x.workers = 1 + r;
    const Plan plan = make_plan(p, x);
    EXPECT_EQ(plan.choice.agreed(), expected.agreed());
    EXPECT_EQ(plan.half_bytes, layout_of(down_projection(), expected, context()).end);
  }
}

TEST_F(GemmRsPlanTest, EveryCandidateSaysWhyItLost) {
  const Plan plan = make_plan(down_projection(), context());
  int shared = 0, own = 0, unfused = 0;
  for (const Candidate& c : plan.candidates) {
    EXPECT_FALSE(c.verdict.empty());
    const bool is_shared = c.text.rfind("chunks of", 0) == 0;
    (is_shared ? shared : own) += c.verdict == "chosen";
    unfused += !c.choice.is_fused;
  }
  EXPECT_EQ(shared, 1);
  EXPECT_EQ(own, 1);
  EXPECT_GT(unfused, 0);
  const std::string text = plan.explain();
  EXPECT_EQ(text.rfind(plan.choice.text() + "\npredicted ", 0), 0u) << text;
  EXPECT_NE(text.find("of each half of the arena"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  multiply, then reduce: predicted"), std::string::npos) << text;
}

TEST_F(GemmRsPlanTest, JsonGoesBothWays) {
  const PlanChoice c{.chunk_rows = 48,
                     .chunk_cols = 40,
                     .window = 7,
                     .is_fused = false,
                     .workers = 5,
                     .reduce_workers = 3,
                     .cursors = {.load_ahead = 2, .publish_behind = 1}};
  EXPECT_EQ(to_json(PlanChoice::from_json(to_json(c))), to_json(c));
  std::set<std::string> parts;
  for (const char* part : {"chunks of 48 x 40", "a window of 7", "5 workers", "3 reduce workers", "2 pieces ahead"}) {
    EXPECT_NE(c.text().find(part), std::string::npos) << c.text();
  }
}

TEST_F(GemmRsPlanTest, JsonThatIsNoPlanIsNamed) {
  EXPECT_NE(error_of([] { PlanChoice::from_json(R"({"op":"all_gather_matmul"})"); }).find("op must be"),
            std::string::npos);
  EXPECT_NE(error_of([] { PlanChoice::from_json(R"({"op":"matmul_reduce_scatter"})"); }).find("chunk_rows"),
            std::string::npos);
  std::string typo = to_json(PlanChoice{});
  typo.insert(typo.size() - 1, R"(,"windows":3)");
  EXPECT_NE(error_of([&] { PlanChoice::from_json(typo); }).find("windows"), std::string::npos);
}

TEST_F(GemmRsPlanTest, AGivenPlanThatCannotBeIsRefusedWithItsNumber) {
  const auto refusal = [&](const PlanChoice& c) {
    const std::string text = error_of([&] { check_choice(c, down_projection(), context()); });
    EXPECT_EQ(error_of([&] { check_plan(c, down_projection(), context()); }), text);
    return text;
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_NE(refusal({.chunk_rows = 1, .chunk_cols = 256, .cursors = {}}).find("2048 of them"), std::string::npos);
  EXPECT_NE(refusal({.chunk_rows = 0, .cursors = {}}).find("chunk_rows = 0"), std::string::npos);
  EXPECT_NE(refusal({.chunk_cols = 0, .cursors = {}}).find("chunk_cols = 0"), std::string::npos);
  EXPECT_NE(refusal({.window = -1, .cursors = {}}).find("window = -1"), std::string::npos);
  EXPECT_NE(refusal({.workers = 0, .cursors = {}}).find("workers = 0"), std::string::npos);
  EXPECT_NE(refusal({.reduce_workers = 257, .cursors = {}}).find("reduce_workers = 257"), std::string::npos);
  // All chunks are made before any is added up, and under a window none behind the first few can be.
  EXPECT_NE(refusal({.window = 3, .is_fused = false, .cursors = {}}).find("window"), std::string::npos);
}

TEST_F(GemmRsPlanTest, ARowListThatIsTooLongOrTooShortForTheRanksIsRefusedWithBothNumbers) {
  expect_one_row_count_for_each_of_four_ranks<Problem>(
      down_projection(), {[&](const Problem& p) { make_plan(p, context()); },
                          [&](const Problem& p) { check_choice(PlanChoice{}, p, context()); }});
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
