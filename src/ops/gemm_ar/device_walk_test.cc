// How the fused kernel of GEMM+AllReduce walks its roles: both forms as one, and who beside the tiles does what.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ops/gemm_ar/helper_deal.h"
#include "ops/gemm_ar/plan.h"
#include "ops/gemm_ar/work_lists.h"
#include "testing/schedule_test_support.h"

namespace tilewire::gemm_ar {
namespace {

// All that a role does, as text.
template <class Role>
std::string walk_of(Role role) {
  std::string text;
  for (typename Role::Work w; role.next(w);) {
    text += "after";
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

TEST(GemmArDeviceWalk, ATableDoesWhatTheRolesOfItsFormDo) {
  constexpr WorkSize kWork{5, 8};
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
          const ReductionWorkLists lists = work_lists(s, kWork);
          const auto tiles = lists.tiles.view();
          Schedule of_one = s;
          of_one.workers = 1;
          const std::string made = walk_of(TabledRole(tiles, 0));
          EXPECT_NE(made, "");
          EXPECT_EQ(made, is_one_shot ? walk_of(PartialTileRole<one_shot::ComputeRole, Schedule>(of_one, 0, kWork))
                                      : walk_of(PartialTileRole<PartialSumRole, Schedule>(of_one, 0, kWork)));
          const auto reduce = lists.reduce.view(), finish = lists.finish.view();
          for (int32_t worker = 0; worker < 2; ++worker, ++walks) {
            if (is_one_shot) {
              EXPECT_EQ(walk_of(TabledRole(reduce, worker)), walk_of(one_shot::ReduceRole(s, worker)));
              EXPECT_EQ(walk_of(TabledRole(finish, worker)), walk_of(one_shot::FinishRole(s, worker)));
            } else {
              EXPECT_EQ(walk_of(TabledRole(reduce, worker)), walk_of(NodeSumRole(s, worker)));
              EXPECT_EQ(walk_of(TabledRole(finish, worker)), walk_of(FinishRole(s, worker)));
              const auto collects = collect_list(s);
              const auto collect = collects.view();
              EXPECT_EQ(walk_of(TabledRole(collect, worker)), walk_of(CollectRole(s, worker)));
            }
          }
          const auto forwards = forward_list(s);
          const auto forward = forwards.view();
          EXPECT_EQ(walk_of(TabledRole(forward, 0)),
                    is_one_shot ? walk_of(one_shot::ForwardRole(s)) : walk_of(ForwardRole(s)));
        }
      }
    }
  }
  EXPECT_EQ(walks, 30);
}

// Places in a half are those of the schedule, in either form.
TEST(GemmArDeviceWalk, ATableSaysWhereResultsLie) {
  const auto bytes = [](uint32_t units) { return int64_t{units} * kWireUnitBytes; };
  size_t seen = 0;
  for (const bool is_one_shot : {false, true}) {
    const PlanChoice choice{.is_one_shot = is_one_shot, .chunk_rows = 5, .chunk_cols = 8, .cursors = {}};
    const ScheduledRanks<ScheduleTables> ranks({2, 1}, Problem{.m = 23, .n = 26, .k = 8}, choice);
    for (int32_t r = 0; r < ranks.size(); ++r) {
      const Schedule s = ranks.at(r);
      const ReductionWorkLists lists = work_lists(s, {5, 8});
      const auto tiles = lists.tiles.view();
      const auto finish = lists.finish.view();
      TileWork t;
      for (TabledRole role(tiles, 0); role.next(t); ++seen) {
        EXPECT_EQ(t.takers, is_one_shot ? s.width() : 1);
        EXPECT_EQ(t.slot, s.partial_slot(s.me(), s.map.at(t.tile)));
      }
      SumWork w;
      for (TabledRole role(finish, 0); role.next(w); ++seen) {
        const OwnedChunk c = s.map.at(w.number);
        EXPECT_EQ(w.row, s.map.rows(c).begin);
        EXPECT_EQ(w.col, s.map.columns(c).begin);
        EXPECT_EQ(bytes(w.partials), s.partial_offset(s.source(0), c));
        EXPECT_EQ(bytes(w.received), s.received_offset(s.other_node(0), c));
        if (is_one_shot) continue;
        EXPECT_EQ(bytes(w.to), s.result_offset(c));
        EXPECT_EQ(bytes(w.also_to), s.finished_offset(c));
      }
      const auto collects = collect_list(s);
      const auto collect = collects.view();
      EXPECT_EQ(collects.workers() == 0, is_one_shot);
      if (!is_one_shot) {
        for (TabledRole role(collect, 0); role.next(w); ++seen) {
          const OwnedChunk c = s.map.at(w.number);
          EXPECT_EQ(w.counter, s.map.global(c));
          EXPECT_EQ(bytes(w.partials), s.result_offset(c));
          EXPECT_EQ(w.row, s.map.rows(c).begin);
          EXPECT_EQ(w.rows, s.map.rows(c).rows());
          EXPECT_EQ(w.cols, s.map.columns(c).cols());
        }
      }
      const auto forwards = forward_list(s);
      const auto forward = forwards.view();
      MoveWork m;
      int32_t number = 0;
      for (TabledRole role(forward, 0); role.next(m); ++number) {
        const OwnedChunk c = s.map.at(m.number);
        EXPECT_EQ(m.counter, number);
        EXPECT_TRUE(s.topology().same_node(s.me(), Rank{m.to}));
        EXPECT_EQ(bytes(m.units), is_one_shot ? s.sum_bytes(c) : s.result_chunk_bytes(c));
        EXPECT_EQ(bytes(m.at),
                  is_one_shot ? s.received_offset(s.topology().node(Rank{m.source}), c) : s.result_offset(c));
      }
    }
  }
  EXPECT_GT(seen, 100u);
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
      if (s.frame.has_network()) is_one_shot ? note(one_shot::ReduceRole(s, 0)) : note(NodeSumRole(s, 0));
      is_one_shot ? note(one_shot::FinishRole(s, 0)) : note(FinishRole(s, 0));
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
