// How the fused kernel of GEMM+AllReduce walks its roles: both forms as one, and who beside the tiles does what.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ops/gemm_ar/either_form.h"
#include "ops/gemm_ar/helper_deal.h"
#include "ops/gemm_ar/plan.h"
#include "testing/schedule_test_support.h"

namespace tilewire::gemm_ar {
namespace {

// All that a role does, as text.
template <class Role>
std::string walk_of(Role role) {
  std::string text;
  for (typename Role::Work w; role.next(w);) {
    text += std::to_string(w.chunk.owner.value) + "/" + std::to_string(w.chunk.chunk.value) + " after";
    for (int32_t i = 0; i < w.needs; ++i) text += " " + std::to_string(role.need(w, i).word);
    text += ", tells";
    for (int32_t i = 0; i < w.publishes; ++i) {
      const Publish p = role.publish(w, i);
      text += " " + std::to_string(p.to.value) + ":" + std::to_string(p.word);
    }
    text += "\n";
  }
  return text;
}

TEST(GemmArDeviceWalk, ARoleOfEitherFormDoesWhatThatOfTheFormDoes) {
  int walks = 0;
  for (const bool is_one_shot : {false, true}) {
    for (const int64_t window : {0, 2}) {
      for (const bool is_fused : {true, false}) {
        if (window > 0 && (is_one_shot || !is_fused)) continue;
        const PlanChoice choice{.is_one_shot = is_one_shot,
                                .chunk_rows = 5,
                                .chunk_cols = 8,
                                .window = window,
                                .is_fused = is_fused,
                                .workers = 3,
                                .reduce_workers = 2,
                                .cursors = {}};
        const ScheduledRanks<ScheduleTables> ranks({2, 1}, Problem{.m = 23, .n = 26, .k = 8}, choice);
        for (int32_t r = 0; r < ranks.size(); ++r) {
          const Schedule s = ranks.at(r);
          for (int32_t worker = 0; worker < 2; ++worker, ++walks) {
            using Compute = TileRole::Chunks;
            EXPECT_EQ(walk_of(Compute(s, worker)),
                      is_one_shot ? walk_of(one_shot::ComputeRole(s, worker)) : walk_of(PartialSumRole(s, worker)));
            EXPECT_EQ(walk_of(EitherReduceRole(s, worker)),
                      is_one_shot ? walk_of(one_shot::ReduceRole(s, worker)) : walk_of(NodeSumRole(s, worker)));
            EXPECT_EQ(walk_of(EitherFinishRole(s, worker)),
                      is_one_shot ? walk_of(one_shot::FinishRole(s, worker)) : walk_of(FinishRole(s, worker)));
            EXPECT_NE(walk_of(Compute(s, worker)), "");
          }
        }
      }
    }
  }
  EXPECT_EQ(walks, 30);
}

// Who stores whole slots sees them as who adds them up, and none leaves its own.
TEST(GemmArDeviceWalk, SlotsAsTheyAreStoredAreSlotsAsTheyAreRead) {
  std::set<int64_t> widths;
  for (const bool is_one_shot : {false, true}) {
    for (const int64_t chunk_cols : {5, 8, 26, 40}) {
      const PlanChoice choice{.is_one_shot = is_one_shot, .chunk_rows = 5, .chunk_cols = chunk_cols, .cursors = {}};
      const ScheduledRanks<ScheduleTables> ranks({2, 1}, Problem{.m = 23, .n = 26, .k = 8}, choice);
      const Schedule s = ranks.at(0);
      for (int32_t g = 0; g < s.map.total_chunks(); ++g) {
        const ColumnRange columns = s.map.columns(s.map.at(g));
        const ReductionSchedule::SlotShape shape = s.partial_slot_shape(s.is_last(columns));
        EXPECT_EQ(shape.cols, columns.cols());
        EXPECT_EQ(shape.pitch_bytes, ReductionBuffers::pitch_bytes(columns, s.buffers.partial_bytes));
        EXPECT_GE(shape.rows, s.map.rows(s.map.at(g)).rows());
        EXPECT_LE(shape.rows * shape.pitch_bytes, s.buffers.partial_slot_bytes);
        widths.insert(shape.cols);
      }
    }
  }
  EXPECT_EQ(widths, (std::set<int64_t>{1, 2, 5, 8, 26}));
}

// Each chunk that is added up has a number of its own, for its counter.
TEST(GemmArDeviceWalk, ChunksThatAreAddedUpAreNumbered) {
  for (const bool is_one_shot : {false, true}) {
    const PlanChoice choice{.is_one_shot = is_one_shot, .chunk_rows = 5, .chunk_cols = 8, .cursors = {}};
    const ScheduledRanks<ScheduleTables> ranks({2, 1}, Problem{.m = 23, .n = 26, .k = 8}, choice);
    for (int32_t r = 0; r < ranks.size(); ++r) {
      const Schedule s = ranks.at(r);
      std::set<int32_t> numbers;
      const auto note = [&](auto role) {
        for (typename decltype(role)::Work w; role.next(w);) {
          if (w.publishes == 0) continue;
          const int32_t number = s.sum_number(w.chunk);
          EXPECT_TRUE(number >= 0 && number < s.sums()) << number;
          EXPECT_TRUE(numbers.insert(number).second) << number;
        }
      };
      if (s.frame.has_network()) note(EitherReduceRole(s, 0));
      note(EitherFinishRole(s, 0));
      EXPECT_FALSE(numbers.empty());
    }
  }
}

TEST(GemmArDeviceWalk, EveryRoleHasHelpersAndEachTeamItsParts) {
  for (const bool is_one_shot : {false, true}) {
    for (const bool has_network : {false, true}) {
      for (const int32_t ctas : {kRankWarps + 1, 5, 7, 16, 33, 132}) {
        const int32_t helpers = helpers_of(ctas);
        const HelperDeal deal(is_one_shot, has_network, helpers);
        std::set<int32_t> roles;
        std::set<std::pair<int32_t, int32_t>> members;
        for (int32_t h = 0; h < helpers; ++h) {
          roles.insert(deal.role(h));
          EXPECT_TRUE(members.insert({deal.role(h), deal.member(h)}).second);
          EXPECT_LT(deal.member(h), deal.members(deal.role(h)));
        }
        std::set<int32_t> all{kFinishRole};
        if (!is_one_shot) all.insert(kCollectRole);
        if (has_network) all.insert({kReduceRole, kForwardRole});
        EXPECT_EQ(roles, all);
        const int32_t teams = deal.most_teams();
        ASSERT_GE(teams, 1);
        for (const int32_t role : all) {
          if (role == kForwardRole) continue;
          std::set<std::pair<int32_t, int32_t>> parts;
          std::vector<int32_t> parts_of(static_cast<size_t>(teams), -1);
          for (int32_t h = 0; h < helpers; ++h) {
            if (deal.role(h) != role) continue;
            const SumTeam team = deal.team(h, teams);
            EXPECT_TRUE(parts.insert({team.worker, team.part}).second);
            EXPECT_LT(team.part, team.parts);
            parts_of[static_cast<size_t>(team.worker)] = team.parts;
          }
          int32_t sum = 0;
          for (const int32_t of_team : parts_of) {
            EXPECT_GE(of_team, 1);
            sum += of_team;
          }
          EXPECT_EQ(sum, deal.members(role));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tilewire::gemm_ar
