// The iterators of AllGather+GEMM by themselves: who does what, in which order.
#include "ops/ag_gemm/schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "ops/ag_gemm/plan.h"
#include "schedule/topology_tables.h"
#include "testing/schedule_test_support.h"

namespace tilewire::ag_gemm {
namespace {

// The schedules of all ranks of a call.
class Ranks {
 public:
  Ranks(const std::vector<int32_t>& layout, const std::vector<int64_t>& rows, int64_t chunk_rows, int64_t n = 20)
      : topology_(TopologyTables::from_layout(layout)) {
    const Problem problem{.rows = rows, .k = 8, .dtype = DataType::bf16, .cols = {n}};
    const PlanChoice choice{.chunk_rows = chunk_rows,
                            .is_fused = true,
                            .tile_rows = 5,
                            .tile_cols = 8,
                            .raster_rows = 2,
                            .workers = 3,
                            .cursors = {}};
    for (int32_t r = 0; r < topology_.view().ranks; ++r) {
      const PlanContext context{.topology = topology_.view(),
                                .me = Rank{r},
                                .arena = {.flags = {.ranks = topology_.view().ranks, .max_chunks = 64},
                                          .half_stride_bytes = 1 << 20,
                                          .user_stride_bytes = 1 << 20},
                                .machine = {}};
      tables_.emplace_back(problem, choice, context);
    }
  }
  Schedule at(int32_t rank) const {
    Schedule s = tables_[rank].schedule(1);
    s.push_workers = push_workers_;
    return s;
  }
  void set_push_workers(int32_t workers) { push_workers_ = workers; }
  Topology topology() const { return topology_.view(); }
  int32_t size() const { return topology_.view().ranks; }

 private:
  TopologyTables topology_;
  std::vector<ScheduleTables> tables_;
  int32_t push_workers_ = 1;
};

TEST(AgGemmSchedule, AgentsAreThoseOfTheListOfRoles) {
  std::deque<Ranks> calls;
  calls.emplace_back(std::vector<int32_t>{2, 2}, std::vector<int64_t>(4, 9), 4);
  expect_agents_of_all_roles<Roles>(calls);
}

using ChunkAt = std::tuple<int32_t, int32_t, int32_t>;  // receiver, source, chunk

// Who delivers which chunk to whom: push and forward by their publishes, send by its commands.
std::map<ChunkAt, std::vector<std::string>> deliveries(const Ranks& ranks) {
  std::map<ChunkAt, std::vector<std::string>> by;
  for (int32_t r = 0; r < ranks.size(); ++r) {
    const Schedule s = ranks.at(r);
    CopyWork copy;
    for (int32_t worker = 0; worker < s.push_workers; ++worker) {
      for (PushRole role(s, worker); role.next(copy);) {
        by[{copy.to.value, r, copy.chunk.chunk.value}].push_back("push");
        EXPECT_EQ(role.publish(copy, 0).word, s.buffers.shard_arrived(copy.chunk));
      }
    }
    for (ForwardRole role(s); role.next(copy);) {
      by[{copy.to.value, copy.chunk.source.value, copy.chunk.chunk.value}].push_back("forward");
    }
    SendWork send;
    for (SendRole role(s); role.next(send);) {
      if (send.command.kind == CommandKind::write) {
        EXPECT_EQ(send.command.word, s.buffers.shard_arrived(send.chunk));
        by[{send.command.peer.value, r, send.chunk.chunk.value}].push_back("send");
      }
    }
  }
  return by;
}

TEST(AgGemmSchedule, EachChunkReachesEachRankExactlyOnceByTheRightRole) {
  std::mt19937 random(7);
  for (const auto& layout : std::vector<std::vector<int32_t>>{{1}, {4}, {2, 2}, {3, 1}, {2, 3}, {1, 1, 2}, {4, 1, 3}}) {
    std::vector<int64_t> rows;
    for (const int32_t l : layout) {
      for (int32_t i = 0; i < l; ++i) rows.push_back(random() % 4 == 0 ? 0 : random() % 40);
    }
    const Ranks ranks(layout, rows, 6);
    const Topology t = ranks.topology();
    const auto by = deliveries(ranks);
    size_t expected = 0;
    for (int32_t source = 0; source < ranks.size(); ++source) {
      const int32_t chunks = ranks.at(0).chunks.chunks_of(Rank{source});
      expected += static_cast<size_t>(chunks) * ranks.size();
      for (int32_t receiver = 0; receiver < ranks.size(); ++receiver) {
        const bool is_local = t.same_node(Rank{source}, Rank{receiver});
        const bool is_entry = t.rail_partner(Rank{source}, t.node(Rank{receiver})) == Rank{receiver};
        const std::vector<std::string> want = {is_local ? "push" : is_entry ? "send" : "forward"};
        for (int32_t c = 0; c < chunks; ++c) EXPECT_EQ(by.at({receiver, source, c}), want);
      }
    }
    EXPECT_EQ(by.size(), expected);
  }
}

TEST(AgGemmSchedule, EachTileIsComputedOnceAndNeedsExactlyTheChunksOfItsRows) {
  const Ranks ranks({2, 2}, {13, 0, 29, 7}, 6);
  for (int32_t r = 0; r < ranks.size(); ++r) {
    const Schedule s = ranks.at(r);
    std::set<std::pair<int64_t, int64_t>> seen;
    for (int32_t worker = 0; worker < s.workers; ++worker) {
      TileWork w;
      for (ComputeRole role(s, worker); role.next(w);) {
        EXPECT_TRUE(seen.insert({w.rows.begin, w.columns.begin}).second);
        std::set<uint32_t> needed, wanted;
        for (int32_t i = 1; i < w.needs; i += 2) needed.insert(role.need(w, i).word);
        for (int64_t row = w.rows.begin; row < w.rows.end; ++row) {
          wanted.insert(s.buffers.shard_arrived(s.chunks.of_row(row)));
        }
        EXPECT_EQ(needed, wanted);
      }
    }
    EXPECT_EQ(seen.size(), 10u * 3u);  // 49 rows in blocks of 5, 20 columns in blocks of 8
  }
}

// Clusters of a kernel take row blocks in pairs, and an odd number gets an empty one more.
TEST(AgGemmSchedule, ARowBlockBehindTheLastRowHasNoRowsAndWaitsForNothing) {
  const Ranks ranks({2, 2}, {13, 0, 29, 7}, 6);
  for (int32_t r = 0; r < ranks.size(); ++r) {
    Schedule s = ranks.at(r);
    std::vector<int32_t> order(s.row_order, s.row_order + s.grid.row_blocks);
    order.push_back(s.grid.row_blocks++);
    s.row_order = order.data();
    s.workers = 1;
    int64_t tiles = 0, empty = 0;
    TileWork w;
    for (ComputeRole role(s, 0); role.next(w); ++tiles) {
      EXPECT_LE(w.rows.end, 49);
      if (w.row_block != 10) continue;
      ++empty;
      EXPECT_EQ(w.rows.rows(), 0);
      EXPECT_EQ(w.needs, 0);
    }
    EXPECT_EQ(tiles, 11 * 3);
    EXPECT_EQ(empty, 3);
  }
}

// Otherwise the first tiles of a rank would wait for the network.
TEST(AgGemmSchedule, OwnRowsAreComputedFirstAndRemoteRowsLast) {
  const Ranks ranks({2, 2}, {20, 20, 20, 20}, 5);
  for (int32_t r = 0; r < ranks.size(); ++r) {
    const Schedule s = ranks.at(r);
    std::vector<int32_t> sources;
    for (int32_t step = 0; step < s.grid.row_blocks; ++step) {
      sources.push_back(s.chunks.of_row(s.grid.block_rows(s.row_order[step]).begin).source.value);
    }
    const int32_t neighbour = r ^ 1;
    EXPECT_EQ(std::set<int32_t>(sources.begin(), sources.begin() + 4), std::set<int32_t>{r});
    EXPECT_EQ(std::set<int32_t>(sources.begin() + 4, sources.begin() + 8), std::set<int32_t>{neighbour});
  }
}

TEST(AgGemmSchedule, SeveralPushWorkersDeliverTogetherWhatOneDelivers) {
  Ranks ranks({3, 2}, {20, 0, 7, 33, 1}, 4);
  const auto by_one = deliveries(ranks);
  for (const int32_t workers : {2, 3, 40}) {
    ranks.set_push_workers(workers);
    EXPECT_EQ(deliveries(ranks), by_one) << workers << " push workers";
  }
}

TEST(AgGemmSchedule, NoReceiverIsHitByAllSourcesAtOnce) {
  const Ranks ranks({4}, {12, 12, 12, 12}, 6);
  std::vector<std::vector<int32_t>> targets(4);
  for (int32_t r = 0; r < 4; ++r) {
    CopyWork w;
    for (PushRole role(ranks.at(r)); role.next(w);) targets[r].push_back(w.to.value);
  }
  for (size_t step = 0; step < targets[0].size(); ++step) {
    std::set<int32_t> at_once;
    for (const auto& t : targets) at_once.insert(t[step]);
    EXPECT_EQ(at_once.size(), 4u) << "step " << step;
  }
}

TEST(AgGemmSchedule, TheLastCommandOfTheSendRingIsCallEndAlsoWhenNothingIsSent) {
  const Ranks ranks({2, 2}, {0, 3, 0, 0}, 6);
  for (int32_t r = 0; r < 4; ++r) {
    SendWork w;
    CommandKind last = CommandKind::write;
    int commands = 0;
    for (SendRole role(ranks.at(r)); role.next(w); ++commands) last = w.command.kind;
    EXPECT_EQ(last, CommandKind::call_end);
    EXPECT_EQ(commands, r == 1 ? 2 : 1);
  }
}

TEST(AgGemmSchedule, ManyRanksWithOneRowEachShareATile) {
  const Ranks ranks({4, 4}, std::vector<int64_t>(8, 1), 6);
  TileWork w;
  ComputeRole role(ranks.at(3), 0);
  int blocks = 0;
  for (; role.next(w); ++blocks) EXPECT_EQ(w.needs, 2 * w.rows.rows());  // for each source its begun and its chunk
  EXPECT_GT(blocks, 0);
}

}  // namespace
}  // namespace tilewire::ag_gemm
