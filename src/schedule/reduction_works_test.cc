// Works that are written down for a kernel: those of the iterators, in their order, and where their data lies.
#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <string>
#include <vector>

#include "schedule/reduction_roles.h"
#include "schedule/reduction_tables.h"
#include "schedule/reduction_work_lists.h"
#include "schedule/topology_tables.h"

namespace tilewire {
namespace {

constexpr WorkSize kWork{4, 8};

// What a role needs and publishes, work by work.
template <class Role>
std::vector<std::string> walk_of(Role role) {
  std::vector<std::string> works;
  for (typename Role::Work w; role.next(w);) {
    std::string text = "after";
    for (int32_t i = 0; i < w.needs; ++i) {
      const Need need = role.need(w, i);
      text += " " + std::to_string(need.word) + "-" + std::to_string(need.lag);
    }
    text += " tells";
    for (int32_t i = 0; i < w.publishes; ++i) {
      const Publish p = role.publish(w, i);
      text += " " + std::to_string(p.to.value) + ":" + std::to_string(p.word);
    }
    works.push_back(text);
  }
  return works;
}

struct ScheduledRank {
  TopologyTables topology;
  ReductionTables tables;
  ReductionSchedule schedule;

  ScheduledRank(const std::vector<int32_t>& widths, Rank me, const ReductionCut& cut, bool is_fused)
      : topology(TopologyTables::from_layout(widths)), tables(topology.view(), me, cut) {
    const ReductionNeeds needs = reduction_needs(topology.view(), cut);
    ReductionSchedule& s = schedule;
    s.frame = {
        .topology = topology.view(), .arena = {.flags = {.ranks = topology.view().ranks, .max_chunks = 64}}, .me = me};
    s.map = tables.view();
    s.buffers.arena = s.frame.arena;
    s.buffers.partial_slot_bytes = s.buffers.sum_slot_bytes = cut.chunk_rows * 2 * ((cut.chunk_cols + 7) / 8 * 8);
    s.buffers.sent_begin = s.buffers.partial_offset(needs.partial_slots);
    s.buffers.received_begin = s.buffers.sent_offset(needs.sent_slots);
    s.workers = 3;
    s.reduce_workers = 2;
    s.is_fused = is_fused;
  }
  // Whose one worker has all tiles, in the order in which clusters take them.
  ReductionSchedule of_one_worker() const {
    ReductionSchedule s = schedule;
    s.workers = 1;
    return s;
  }
  ReductionWorkLists lists() const {
    return reduction_work_lists<PartialSumRole, NodeSumRole, OwnedSumRole>(schedule, kWork,
                                                                           [](OwnedChunk, SumWork&) {});
  }
};

// visit(rank) for ranks of several layouts, with and without a window, fused and not.
template <class Visit>
void for_each_rank(const Visit& visit) {
  for (const std::vector<int32_t>& widths : {std::vector{2, 1, 2}, std::vector{3}, std::vector{1, 1}}) {
    for (const int64_t window : {0, 2}) {
      for (const bool is_fused : {true, false}) {
        if (!is_fused && window > 0) continue;
        int32_t ranks = 0;
        for (const int32_t width : widths) ranks += width;
        std::vector<int64_t> rows{9, 0, 14, 5, 7};
        rows.resize(static_cast<size_t>(ranks));
        const ReductionCut cut{.rows = rows, .cols = 21, .chunk_rows = 6, .chunk_cols = 16, .window = window};
        for (int32_t r = 0; r < ranks; ++r) visit(ScheduledRank(widths, Rank{r}, cut, is_fused));
      }
    }
  }
}

TEST(ReductionWorksTest, NeedAndPublishWhatTheIteratorsDo) {
  size_t works = 0;
  for_each_rank([&](const ScheduledRank& rank) {
    const ReductionSchedule& s = rank.schedule;
    const ReductionWorkLists lists = rank.lists();
    const auto tiles = lists.tiles.view();
    const auto walked = walk_of(TabledRole(tiles, 0));
    EXPECT_EQ(walked, walk_of(PartialTileRole<PartialSumRole, ReductionSchedule>(rank.of_one_worker(), 0, kWork)));
    EXPECT_EQ(lists.tiles.works(), walked.size());
    works += walked.size();
    EXPECT_EQ(lists.tiles.workers(), 1u);
    EXPECT_EQ(lists.finish.workers(), 2u);
    EXPECT_EQ(lists.reduce.workers(), s.frame.has_network() ? 2u : 0u);
    const auto reduce = lists.reduce.view(), finish = lists.finish.view();
    for (int32_t worker = 0; worker < s.reduce_workers; ++worker) {
      if (s.frame.has_network()) {
        EXPECT_EQ(walk_of(TabledRole(reduce, worker)), walk_of(NodeSumRole(s, worker)));
      }
      EXPECT_EQ(walk_of(TabledRole(finish, worker)), walk_of(OwnedSumRole(s, worker)));
    }
  });
  EXPECT_GT(works, 500u);
}

TEST(ReductionWorksTest, SayWhereTheDataOfAChunkLies) {
  const auto bytes = [](uint32_t units) { return int64_t{units} * kWireUnitBytes; };
  for_each_rank([&](const ScheduledRank& rank) {
    const ReductionSchedule& s = rank.schedule;
    const ReductionWorkLists lists = rank.lists();
    const auto tiles = lists.tiles.view();
    PartialTileRole<PartialSumRole, ReductionSchedule> role(rank.of_one_worker(), 0, kWork);
    const TakenRole<TileWork> taken(tiles);
    decltype(role)::Work w;
    TileWork t;
    for (uint32_t number = 0; role.next(w); ++number) {
      ASSERT_LT(number, lists.tiles.works());
      ASSERT_TRUE(taken.take(number, t));
      ASSERT_EQ(t.needs, w.needs);
      for (int32_t i = 0; i < t.needs; ++i) EXPECT_EQ(taken.need(t, i).word, role.need(w, i).word);
      EXPECT_EQ(t.rows.begin, w.rows.begin);
      EXPECT_EQ(t.columns.begin, w.columns.begin);
      EXPECT_EQ(t.chunk_row, w.chunk_rows.begin);
      EXPECT_EQ(t.chunk_col, w.chunk_columns.begin);
      EXPECT_EQ(t.slot, s.partial_slot(s.me(), w.chunk));
      EXPECT_EQ(t.map / kSlotMaps, s.topology().local(s.taker(w.chunk.owner)).value);
      EXPECT_EQ(t.map % kSlotMaps, w.chunk_columns.end == 21 ? 1 : 0);
      EXPECT_EQ(t.takers, 1);
      EXPECT_EQ(t.works, w.works);
      EXPECT_EQ(t.tile, s.map.global(w.chunk));
    }
    const auto expect_sum = [&](const SumWork& t, OwnedChunk c) {
      EXPECT_EQ(t.counter, s.sum_number(c));
      EXPECT_EQ(t.rows, s.map.rows(c).rows());
      EXPECT_EQ(t.cols, s.map.columns(c).cols());
      for (int32_t i = 0; i < s.width(); ++i) {
        EXPECT_EQ(bytes(t.partials) + i * bytes(t.partial_step), s.partial_offset(s.source(i), c));
      }
    };
    const auto reduce = lists.reduce.view(), finish = lists.finish.view();
    for (int32_t worker = 0; worker < s.reduce_workers; ++worker) {
      NodeSumRole sums(s, worker);
      NodeSumWork sum;
      SumWork t;
      if (s.frame.has_network()) {
        for (TabledRole tabled(reduce, worker); tabled.next(t);) {
          ASSERT_TRUE(sums.next(sum));
          expect_sum(t, sum.chunk);
          EXPECT_EQ(bytes(t.to), s.sent_offset(sum.chunk));
        }
      }
      OwnedSumRole owned(s, worker);
      OwnedSumWork own;
      for (TabledRole tabled(finish, worker); tabled.next(t);) {
        ASSERT_TRUE(owned.next(own));
        expect_sum(t, own.chunk);
        EXPECT_EQ(t.col, s.map.columns(own.chunk).begin);
        for (int32_t i = 0; i < s.other_nodes(); ++i) {
          EXPECT_EQ(bytes(t.received) + i * bytes(t.received_step), s.received_offset(s.other_node(i), own.chunk));
        }
      }
    }
  });
}

TEST(ReductionWorksTest, AHalfThatIsTooLargeIsRefused) {
  EXPECT_EQ(wire_unit(int64_t{0xffffffff} * kWireUnitBytes), 0xffffffff);
  EXPECT_THROW(wire_unit((int64_t{0xffffffff} + 1) * kWireUnitBytes), Error);
}

}  // namespace
}  // namespace tilewire
