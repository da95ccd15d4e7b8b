// How kernels cut a reduction: nothing twice, nothing left out.
#include "schedule/reduction_tiles.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "schedule/reduction_tables.h"
#include "schedule/topology_tables.h"

namespace tilewire {
namespace {

using TileRole = PartialTileRole<PartialSumRole, ReductionSchedule>;

TEST(ReductionTilesTest, WorksOfAllWorkersCoverEachElementOnce) {
  const TopologyTables topology = TopologyTables::from_layout({2, 1});
  for (const WorkSize size : {WorkSize{4, 8}, WorkSize{8, 4}, WorkSize{64, 64}, WorkSize{3, 5}}) {
    const ReductionTables tables(
        topology.view(), Rank{1},
        {.rows = {9, 0, 14}, .cols = 21, .chunk_rows = 6, .chunk_cols = 4, .band_blocks = size.rows});
    ReductionSchedule s;
    s.frame = {.topology = topology.view(), .arena = {}, .me = Rank{1}};
    s.map = tables.view();
    s.workers = 4;
    std::map<std::pair<int64_t, int64_t>, int> times;
    std::map<int64_t, int> works, said;
    for (int32_t worker = 0; worker < s.workers; ++worker) {
      TileRole::Work w;
      for (TileRole role(s, worker, size); role.next(w);) {
        ++works[w.tile];
        said[w.tile] = w.works;
        EXPECT_EQ(w.rows.rows(), size.rows);
        for (int64_t row = w.rows.begin; row < w.rows.end && row < w.chunk_rows.end; ++row) {
          for (int64_t col = w.columns.begin; col < w.columns.end && col < w.chunk_columns.end; ++col) {
            ++times[{row, col}];
          }
        }
      }
    }
    EXPECT_EQ(times.size(), 23u * 21u);
    for (const auto& [place, count] : times) EXPECT_EQ(count, 1) << place.first << ", " << place.second;
    EXPECT_EQ(works, said);
  }
}

TEST(ReductionTilesTest, EachWorkOfAChunkWaitsForItsSlot) {
  const TopologyTables topology = TopologyTables::from_layout({1});
  const ReductionTables tables(topology.view(), Rank{0},
                               {.rows = {12}, .cols = 8, .chunk_rows = 4, .chunk_cols = 8, .window = 1});
  ReductionSchedule s;
  s.frame = {.topology = topology.view(), .arena = {}, .me = Rank{0}};
  s.map = tables.view();
  std::vector<int32_t> needs;
  TileRole::Work w;
  for (TileRole role(s, 0, {2, 8}); role.next(w);) needs.push_back(w.needs);
  EXPECT_EQ(needs, (std::vector<int32_t>{0, 0, 1, 1, 1, 1}));
}

TEST(ReductionTilesTest, TeamsShareOutAllWarpsAndEachChunkAllOfItsNumbers) {
  for (const int32_t members : {1, 5, 8, 29}) {
    for (const int32_t workers : {1, 2, members}) {
      if (workers > members) continue;
      std::map<int32_t, std::set<int32_t>> parts;
      for (int32_t member = 0; member < members; ++member) {
        const SumTeam team = sum_team(member, members, workers);
        EXPECT_TRUE(parts[team.worker].insert(team.part).second);
        EXPECT_LT(team.part, team.parts);
      }
      EXPECT_EQ(parts.size(), static_cast<size_t>(workers));
      for (const auto& [worker, of] : parts) {
        EXPECT_EQ(static_cast<int32_t>(of.size()), sum_team(worker, members, workers).parts);
      }
    }
  }
  for (const int32_t run : {4, 8}) {
    for (const int32_t parts : {1, 3, 8}) {
      for (const auto& [rows, cols] : {std::pair{1, 1}, {5, 33}, {64, 256}, {200, 7}, {3, 600}, {0, 8}, {4, 0}}) {
        std::map<std::pair<int32_t, int32_t>, int> times;
        for (int32_t part = 0; part < parts; ++part) {
          for (int32_t lane = 0; lane < 32; ++lane) {
            for (PlaceWalk walk(rows, cols, run, {0, part, parts}, lane); walk.has_next();) {
              const NumberPlace p = walk.next();
              for (int32_t i = 0; i < p.count; ++i) ++times[{p.row, p.col + i}];
            }
          }
        }
        EXPECT_EQ(static_cast<int32_t>(times.size()), rows * cols);
        for (const auto& [place, count] : times) EXPECT_EQ(count, 1) << place.first << ", " << place.second;
      }
    }
  }
}

}  // namespace
}  // namespace tilewire
