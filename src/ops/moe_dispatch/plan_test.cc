#include "ops/moe_dispatch/plan.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <string>

#include "ops/moe_dispatch/routing_fixture.h"
#include "schedule/topology_tables.h"
#include "testing/op_plan_test.h"

namespace tilewire::moe_dispatch {
namespace {

class Cluster {
 public:
  explicit Cluster(const std::vector<int32_t>& layout, int64_t half_bytes = int64_t{1} << 30, int32_t max_chunks = 1024)
      : topology_(TopologyTables::from_layout(layout)) {
    context.topology = topology_.view();
    context.arena = {.flags = {.ranks = context.topology.ranks, .max_chunks = max_chunks},
                     .half_stride_bytes = half_bytes};
  }
  PlanContext context;

 private:
  TopologyTables topology_;
};

Problem problem_of(int32_t experts, int32_t ranks, int64_t tokens, int64_t h = 64) {
  Problem p{.rank_of_expert = {}, .h = h, .top_k = 2};
  for (int32_t e = 0; e < experts; ++e) p.rank_of_expert.push_back(e % ranks);
  p.most_rows = 2 * tokens * ranks;
  p.most_tokens = p.planned_tokens = tokens;
  p.cols = 64;
  return p;
}

struct PlannedCase {
  static Problem problem() { return problem_of(16, 4, 600); }
  static void change_own(Problem& problem, int32_t r) {
    problem.cols = 10 + 100 * r;
    problem.out_dtype = r % 2 == 0 ? DataType::fp32 : DataType::bf16;
  }
  static PlanChoice other() {
    return {.block_tokens = 70,
            .window = 3,
            .chunk_tokens = 5,
            .pieces = 2,
            .local_first = false,
            .is_fused = false,
            .tile_rows = 7,
            .tile_cols = 9,
            .raster_rows = 3,
            .workers = 5,
            .cursors = {.load_ahead = 2, .publish_behind = 1}};
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(MoeDispatch, OpPlanTest, PlannedCase);

TEST(MoeDispatchPlan, AGivenPlanCostsWhatItCostAsACandidate) {
  const Cluster cluster({2, 2});
  const Problem problem = problem_of(16, 4, 100);
  const Plan plan = make_plan(problem, cluster.context);
  EXPECT_EQ(check_plan(plan.choice, problem, cluster.context).predicted_s, plan.predicted_s);
}

// Memory is for rounds, and rounds are made as small as memory wants them: under any routing.
TEST(MoeDispatchPlan, LessMemoryMeansSmallerRoundsUntilNoneFits) {
  const Problem problem = problem_of(16, 4, 2000, 512);
  for (const int64_t half_bytes : {int64_t{1} << 30, int64_t{16} << 20, int64_t{10} << 20}) {
    const Cluster cluster({2, 2}, half_bytes);
    const Plan plan = make_plan(problem, cluster.context);
    EXPECT_LE(plan.half_bytes, half_bytes);
    const bool has_room = half_bytes == int64_t{1} << 30;
    EXPECT_EQ(plan.explain().find("are reserved") == std::string::npos, has_room) << plan.explain();
    EXPECT_TRUE(has_room || plan.choice.block_tokens * plan.choice.window < 2000) << plan.explain();
  }
  const Cluster none({2, 2}, 1 << 20);
  const std::string error = error_of([&] { make_plan(problem, none.context); });
  EXPECT_NE(error.find("TILEWIRE_ARENA_RESERVE_BYTES"), std::string::npos) << error;
}

TEST(MoeDispatchPlan, NumbersThatCannotBeAreRefusedByName) {
  const Cluster cluster({2, 2});
  const Problem problem = problem_of(16, 4, 3000);
  const auto text_of = [&](const PlanChoice& choice) {
    return error_of([&] { check_choice(choice, problem, cluster.context); });
  };
  PlanChoice choice{.block_tokens = 3000, .chunk_tokens = 64, .cursors = {}};
  EXPECT_NO_THROW(check_choice(choice, problem, cluster.context));
  choice.window = 1;
  choice.chunk_tokens = 2;
  EXPECT_NE(text_of(choice).find("rounds of 1500 words"), std::string::npos) << text_of(choice);
  choice.block_tokens = 2;
  EXPECT_NE(text_of(choice).find("1500 rounds of 1 words"), std::string::npos) << text_of(choice);
  choice = {.block_tokens = 4, .chunk_tokens = 64, .workers = 4096, .cursors = {}};
  EXPECT_NE(text_of(choice).find("750 rounds of 4096 workers"), std::string::npos) << text_of(choice);
}

TEST(MoeDispatchPlan, ProblemsThatCannotBeAreRefusedByName) {
  const Cluster cluster({2, 2});
  const auto text_of = [&](const std::function<void(Problem&)>& spoil) {
    Problem problem = problem_of(16, 4, 100);
    spoil(problem);
    return error_of([&] { make_plan(problem, cluster.context); });
  };
  EXPECT_NE(text_of([](Problem& p) { p.rank_of_expert[3] = 4; }).find("experts[3] = 4"), std::string::npos);
  EXPECT_NE(text_of([](Problem& p) { p.rank_of_expert.clear(); }).find("0 experts"), std::string::npos);
  EXPECT_NE(text_of([](Problem& p) { p.top_k = 0; }).find("k = 0"), std::string::npos);
  EXPECT_NE(text_of([](Problem& p) { p.top_k = 65; }).find("k = 65"), std::string::npos);
  EXPECT_NE(text_of([](Problem& p) { p.h = -1; }).find("h = -1"), std::string::npos);
  EXPECT_NE(text_of([](Problem& p) { p.dtype = DataType::fp32; }).find("bf16 or fp16"), std::string::npos);
  EXPECT_NE(text_of([](Problem& p) { p.most_tokens = p.planned_tokens = int64_t{1} << 31; }).find("too many tokens"),
            std::string::npos);
}

// B23: whatever a row, a token or a round is multiplied by (fault kind WIDTH).
TEST(MoeDispatchPlan, PlacesBehind2To32BytesAreTheirs) {
  const int64_t tokens = 1 << 20;
  const Cluster cluster({2, 2}, int64_t{1} << 46, 1 << 16);
  const Problem problem = problem_of(64, 4, tokens, 7168);
  const Buffers b = buffers_of(problem, {.block_tokens = tokens / 2, .window = 2, .cursors = {}}, cluster.context);
  const int64_t row = 7168 * 2, token = row + 32, rows = tokens / 2 * 4 * 2;
  ASSERT_EQ(b.slot_rows, rows);
  EXPECT_GT(rows * row, int64_t{1} << 32);
  EXPECT_EQ(b.rows_offset(1, rows - 1) - b.rows_offset(0, 0), (2 * rows - 1) * row);
  EXPECT_EQ(b.origins_offset(1, rows - 1) - b.origins_offset(0, 0), (2 * rows - 1) * 8);
  EXPECT_GT(tokens * token, int64_t{1} << 32);
  EXPECT_EQ(b.outbox_offset(tokens - 1) - b.outbox_offset(0), (tokens - 1) * token);
  EXPECT_EQ(b.staging_offset(0, 1, tokens / 2 - 1) - b.staging_offset(0, 0, 0), (tokens - 1) * token);
  EXPECT_EQ(b.end() - b.staging_offset(0, 0, 0), b.entries * tokens * token);
}

// A record is one command of a rank to each other node.
TEST(MoeDispatchPlan, CountsThatNoCommandCanCarryAreRefused) {
  const Cluster one({1}, int64_t{1} << 40, 1 << 16), two({1, 1}, int64_t{1} << 40, 1 << 16);
  Problem problem = problem_of(4096, 1, 1 << 15, 0);
  const PlanChoice choice{.block_tokens = 1, .chunk_tokens = 1, .cursors = {}};
  EXPECT_NO_THROW(check_choice(choice, problem, one.context));
  const std::string error = error_of([&] { check_choice(choice, problem, two.context); });
  EXPECT_NE(error.find("counts of 32768 rounds are 537133072 bytes, at most 268435440"), std::string::npos) << error;
}

// Products that would not fit 64 bits are an error that says so (fault kind WIDTH).
TEST(MoeDispatchPlan, SizesBeyond64BitsAreAnError) {
  const Cluster cluster({2, 2});
  Problem problem = problem_of(16, 4, 100);
  problem.h = int64_t{1} << 60;
  const std::string error = error_of([&] { make_plan(problem, cluster.context); });
  EXPECT_NE(error.find("64 bits"), std::string::npos) << error;
}

TEST(MoeDispatchPlan, PlacementsThatDifferHaveTextsThatDiffer) {
  Problem a = problem_of(64, 4, 10), b = a;
  std::swap(b.rank_of_expert[40], b.rank_of_expert[41]);
  EXPECT_NE(text_of(a.agreed()), text_of(b.agreed()));
  Problem even = a;
  for (int32_t e = 0; e < 64; ++e) even.rank_of_expert[static_cast<size_t>(e)] = e / 16;
  EXPECT_NE(text_of(even.agreed()).find("64 experts, 16 on each of 4 ranks"), std::string::npos);
}

}  // namespace
}  // namespace tilewire::moe_dispatch
