#include "ops/gemm_ar/plan.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ops/gemm_ar/layout.h"
#include "schedule/topology_tables.h"
#include "testing/plan_test_support.h"

namespace tilewire::gemm_ar {
namespace {

class GemmArPlanTest : public FourRanksPlanTest {
 protected:
  static Problem down_projection() { return {.m = 512, .n = 2048, .k = 2048}; }
};

TEST_F(GemmArPlanTest, TheSharedPartIsTheSameOnAllRanksWhateverTheirDepthAndWorkers) {
  for (const int64_t m : {1, 512}) {
    Problem first = down_projection();
    first.m = m;
    const Plan expected = make_plan(first, context());
    for (int32_t r = 0; r < 4; ++r) {
      Problem p = first;
      p.k = 100 * r;
      PlanContext x = context(r);
      x.workers = 1 + r;
      const Plan plan = make_plan(p, x);
      EXPECT_EQ(plan.choice.agreed(), expected.choice.agreed());
      EXPECT_EQ(plan.half_bytes, expected.half_bytes);
    }
  }
}

TEST_F(GemmArPlanTest, BothFormsAndTheUnfusedPlanAreCandidatesThatSayWhyTheyLost) {
  const Plan plan = make_plan(down_projection(), context());
  int one_shot = 0, unfused = 0, chosen = 0;
  for (const Candidate& c : plan.candidates) {
    EXPECT_FALSE(c.verdict.empty());
    chosen += c.verdict == "chosen";
    one_shot += c.choice.is_one_shot;
    unfused += !c.choice.is_fused;
  }
  EXPECT_EQ(chosen, 2);  // of the shared part, and of the own
  EXPECT_GT(one_shot, 0);
  EXPECT_EQ(unfused, 1);
  EXPECT_NE(plan.explain().find("\n  multiply, then reduce"), std::string::npos) << plan.explain();
}

TEST_F(GemmArPlanTest, JsonGoesBothWays) {
  const PlanChoice c{.is_one_shot = true,
                     .chunk_rows = 48,
                     .chunk_cols = 40,
                     .window = 7,
                     .is_fused = false,
                     .workers = 5,
                     .reduce_workers = 3,
                     .gather_behind = 9,
                     .cursors = {.load_ahead = 2, .publish_behind = 1}};
  EXPECT_EQ(to_json(PlanChoice::from_json(to_json(c))), to_json(c));
  EXPECT_NE(to_json(c).find("\"gather_behind\":9"), std::string::npos) << to_json(c);
  EXPECT_NE(error_of([] { PlanChoice::from_json(R"({"op":"matmul_reduce_scatter"})"); }).find("op must be"),
            std::string::npos);
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
  EXPECT_NE(refusal({.gather_behind = -1, .cursors = {}}).find("gather_behind = -1"), std::string::npos);
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
