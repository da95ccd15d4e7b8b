// The iterators of GEMM+ReduceScatter by themselves: who does what, in which order.
#include "ops/gemm_rs/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/gemm_rs/plan.h"
#include "schedule/reduction_tables.h"
#include "schedule/topology_tables.h"
#include "testing/schedule_test_support.h"

namespace tilewire::gemm_rs {
namespace {

using Layout = std::vector<int32_t>;

// The schedules of all ranks of a call.
struct Ranks : ScheduledRanks<ScheduleTables> {
  Ranks(const Layout& layout, const std::vector<int64_t>& rows, int64_t window = 0, int64_t n = 20)
      : ScheduledRanks(
            layout, Problem{.rows = rows, .n = n, .k = 8},
            PlanChoice{
                .chunk_rows = 5, .chunk_cols = 8, .window = window, .workers = 3, .reduce_workers = 2, .cursors = {}}) {
  }
};

std::vector<int64_t> uneven_rows(const Layout& layout, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int64_t> rows;
  for (const int32_t l : layout) {
    for (int32_t i = 0; i < l; ++i) rows.push_back(random() % 4 == 0 ? 0 : random() % 40);
  }
  return rows;
}

TEST(GemmRsSchedule, AgentsAreThoseOfTheListOfRoles) {
  std::deque<Ranks> calls;
  calls.emplace_back(Layout{2, 2}, std::vector<int64_t>(4, 9));
  expect_agents_of_all_roles<Roles>(calls);
}

using ChunkOf = std::pair<int32_t, int32_t>;  // owner, chunk
ChunkOf key(OwnedChunk c) { return {c.owner.value, c.chunk.value}; }

TEST(GemmRsSchedule, EachElementIsInOneChunkOfItsOwner) {
  for (const Layout& layout : uneven_layouts()) {
    const Ranks ranks(layout, uneven_rows(layout, 7));
    const ReductionMap map = ranks.at(0).map;
    std::set<std::pair<int64_t, int64_t>> seen;
    for (int32_t g = 0; g < map.total_chunks(); ++g) {
      const OwnedChunk c = map.at(g);
      EXPECT_EQ(map.global(c), g);
      const RowRange rows = map.rows(c);
      const ColumnRange columns = map.columns(c);
      EXPECT_GE(rows.begin, map.blocks.row_begin[c.owner.value]);
      EXPECT_LE(rows.end, map.blocks.row_begin[c.owner.value + 1]);
      EXPECT_TRUE(rows.rows() > 0 && columns.cols() > 0);
      for (int64_t r = rows.begin; r < rows.end; ++r) {
        for (int64_t n = columns.begin; n < columns.end; ++n) EXPECT_TRUE(seen.insert({r, n}).second);
      }
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), map.blocks.total_rows() * 20);
  }
}

// Partial sums of each rank at the owner's rail partner, one node sum of each other node at the owner.
TEST(GemmRsSchedule, EachPartAndEachNodeSumArrivesOnceWhereItIsAddedUp) {
  for (const Layout& layout : uneven_layouts()) {
    const Ranks ranks(layout, uneven_rows(layout, 3));
    const Topology t = ranks.topology();
    std::map<std::tuple<int32_t, int32_t, ChunkOf>, int> partials, sums;  // at, from, chunk
    std::map<std::pair<int32_t, ChunkOf>, int> added, finished;
    for (int32_t r = 0; r < ranks.size(); ++r) {
      const Schedule s = ranks.at(r);
      for (int32_t worker = 0; worker < s.workers; ++worker) {
        walk(ComputeRole(s, worker), [&](const ComputeWork& w, const ComputeRole& role) {
          ++partials[{role.publish(w, 0).to.value, r, key(w.chunk)}];
        });
      }
      for (int32_t worker = 0; worker < s.reduce_workers; ++worker) {
        walk(ReduceRole(s, worker), [&](const ReduceWork& w, const ReduceRole&) { ++added[{r, key(w.chunk)}]; });
        walk(FinishRole(s, worker), [&](const FinishWork& w, const FinishRole&) { ++finished[{r, key(w.chunk)}]; });
      }
      walk(SendRole(s), [&](const SendWork& w, const SendRole&) {
        if (w.command.kind == CommandKind::write) ++sums[{w.command.peer.value, r, key(w.chunk)}];
      });
    }
    const ReductionMap map = ranks.at(0).map;
    size_t local = 0, remote = 0;
    for (int32_t g = 0; g < map.total_chunks(); ++g) {
      const OwnedChunk c = map.at(g);
      EXPECT_EQ((finished[{c.owner.value, key(c)}]), 1);
      for (int32_t r = 0; r < ranks.size(); ++r, ++local) {
        EXPECT_EQ((partials[{t.rail_partner(c.owner, t.node(Rank{r})).value, r, key(c)}]), 1);
      }
      for (int32_t n = 0; n < t.nodes; ++n) {
        if (Node{n} == t.node(c.owner)) continue;
        const Rank taker = t.rail_partner(c.owner, Node{n});
        EXPECT_EQ((added[{taker.value, key(c)}]), 1);
        EXPECT_EQ((sums[{c.owner.value, taker.value, key(c)}]), 1);
        ++remote;
      }
    }
    EXPECT_EQ(partials.size(), local);
    EXPECT_EQ(sums.size(), remote);
    EXPECT_EQ(added.size(), remote);
    EXPECT_EQ(finished.size(), static_cast<size_t>(map.total_chunks()));
  }
}

// All sources use the order in which the receiver adds up, or a window would stand still.
TEST(GemmRsSchedule, EverySourceServesARailInTheOrderInWhichItIsAddedUp) {
  for (const Layout& layout : uneven_layouts()) {
    const Ranks ranks(layout, uneven_rows(layout, 5));
    const Topology t = ranks.topology();
    for (int32_t r = 0; r < ranks.size(); ++r) {
      const Schedule s = ranks.at(r);
      std::map<int32_t, std::vector<ChunkOf>> to;
      for (int32_t i = 0; i < s.map.total_chunks(); ++i) {
        const OwnedChunk c = s.map.at(s.map.order[i]);
        to[s.taker(c.owner).value].push_back(key(c));
      }
      for (int32_t l = 0; l < s.width(); ++l) {
        const Rank receiver = t.rank_at(s.here(), LocalRank{l});
        const ReductionMap theirs = ranks.at(receiver.value).map;
        std::vector<ChunkOf> expected, remote;
        for (int32_t i = 0; i < theirs.rail_chunks; ++i) remote.push_back(key(theirs.at(theirs.rail_order[i])));
        std::vector<ChunkOf> own, others;
        for (const ChunkOf& c : to[receiver.value]) (c.first == receiver.value ? own : others).push_back(c);
        EXPECT_EQ(others, remote);
        for (int32_t c = 0; c < theirs.chunks_of(receiver); ++c) expected.emplace_back(receiver.value, c);
        EXPECT_EQ(own, expected);
      }
    }
  }
}

TEST(GemmRsSchedule, ChunksGoInRoundsWithTheOwnOnesLastAndNoReceiverServedByAllAtOnce) {
  const Ranks ranks({4, 4}, std::vector<int64_t>(8, 10), 0, 8);
  std::vector<std::vector<int32_t>> takers(4);
  for (int32_t r = 0; r < 4; ++r) {
    const Schedule s = ranks.at(r);
    for (int32_t i = 0; i < s.map.total_chunks(); ++i) {
      const OwnedChunk c = s.map.at(s.map.order[i]);
      EXPECT_EQ(c.chunk.value, i / 8) << "round";
      EXPECT_EQ(ranks.topology().same_node(c.owner, Rank{r}), i % 8 >= 4);
      EXPECT_EQ(c.owner == Rank{r}, i % 8 == 7);
      takers[static_cast<size_t>(r)].push_back(s.taker(c.owner).value);
    }
  }
  for (size_t step = 0; step < takers[0].size(); ++step) {
    std::set<int32_t> at_once;
    for (const auto& t : takers) at_once.insert(t[step]);
    EXPECT_EQ(at_once.size(), 4u) << "step " << step;
  }
}

// What goes over the network is made earlier by as many rounds as the plan says; each owner's chunks keep their order.
TEST(GemmRsSchedule, ChunksForTheOwnNodeComeAsManyRoundsBehindAsThePlanSays) {
  const TopologyTables topology = TopologyTables::from_layout({2, 1});
  const Topology t = topology.view();
  for (const int32_t behind : {0, 1, 3, 1000}) {
    const ReductionTables tables(
        t, Rank{1}, {.rows = {9, 14, 17}, .cols = 8, .chunk_rows = 4, .chunk_cols = 8, .own_behind = behind});
    const ReductionMap map = tables.view();
    std::vector<int32_t> next(3, 0);
    int64_t last_round = 0;
    for (int32_t i = 0; i < map.total_chunks(); ++i) {
      const OwnedChunk c = map.at(map.order[i]);
      EXPECT_EQ(c.chunk.value, next[static_cast<size_t>(c.owner.value)]++) << "owner " << c.owner.value;
      const int64_t round = c.chunk.value + (t.same_node(c.owner, Rank{1}) ? std::min(behind, map.total_chunks()) : 0);
      EXPECT_GE(round, last_round) << "behind " << behind;
      last_round = round;
    }
    EXPECT_EQ(next, (std::vector<int32_t>{3, 4, 5}));
  }
}

using Slot = std::tuple<int32_t, int64_t, int64_t>;  // rank, from, to

// Two chunks have bytes in common only where one follows the other in its slot.
TEST(GemmRsSchedule, SlotsOfDifferentSourcesOwnersAndChunksDoNotOverlap) {
  for (const Layout& layout : uneven_layouts()) {
    for (const int64_t window : {0, 1, 3}) {
      const Ranks ranks(layout, uneven_rows(layout, 11), window);
      std::map<Slot, std::set<std::tuple<int32_t, int32_t, int32_t>>> users;  // family and source, owner, slot
      std::map<int32_t, std::map<int64_t, int64_t>> spans;                    // of each rank: begin -> end
      const auto use = [&](int32_t at, int64_t begin, int64_t end, int32_t what, OwnedChunk c, int32_t slot) {
        users[{at, begin, 0}].insert({what, c.owner.value, slot});
        int64_t& known = spans[at][begin];
        known = std::max(known, end);
      };
      for (int32_t r = 0; r < ranks.size(); ++r) {
        const Schedule s = ranks.at(r);
        for (int32_t g = 0; g < s.map.total_chunks(); ++g) {
          const OwnedChunk c = s.map.at(g);
          const int64_t begin = s.partial_offset(Rank{r}, c);
          use(s.taker(c.owner).value, begin, begin + s.partial_bytes(c), r, c, s.map.slot(c));
        }
        for (int32_t i = 0; i < s.map.rail_chunks; ++i) {
          const OwnedChunk c = s.map.at(s.map.rail_order[i]);
          const int64_t sent = s.sent_offset(c), received = s.received_offset(s.here(), c);
          use(r, sent, sent + s.sum_bytes(c), 1000, c, c.chunk.value);
          use(c.owner.value, received, received + s.sum_bytes(c), 2000 + s.here().value, c, s.map.slot(c));
        }
      }
      for (const auto& [slot, who] : users) EXPECT_EQ(who.size(), 1u) << testing::PrintToString(layout);
      for (const auto& [rank, of_rank] : spans) {
        int64_t end = 0;
        for (const auto& [begin, its_end] : of_rank) {
          EXPECT_LE(end, begin) << testing::PrintToString(layout) << " rank " << rank;
          end = its_end;
        }
      }
    }
  }
}

TEST(GemmRsSchedule, ACreditIsGivenForEachChunkThatAnotherOneFollowsAndForNoOther) {
  for (const int64_t window : {0, 1, 2, 100}) {
    const Ranks ranks({2, 2}, {13, 0, 29, 7}, window);
    std::multiset<std::pair<int32_t, uint32_t>> given, waited;  // rank, word
    for (int32_t r = 0; r < ranks.size(); ++r) {
      const Schedule s = ranks.at(r);
      for (int32_t worker = 0; worker < s.workers; ++worker) {
        walk(ComputeRole(s, worker), [&](const ComputeWork& w, const ComputeRole& role) {
          for (int32_t i = 0; i < w.needs; ++i) waited.insert({r, role.need(w, i).word});
        });
      }
      for (int32_t worker = 0; worker < s.reduce_workers; ++worker) {
        walk(ReduceRole(s, worker), [&](const ReduceWork& w, const ReduceRole& role) {
          for (int32_t i = 1; i < w.publishes; ++i)
            given.insert({role.publish(w, i).to.value, role.publish(w, i).word});
        });
        walk(FinishRole(s, worker), [&](const FinishWork& w, const FinishRole& role) {
          for (int32_t i = 0; i < w.publishes; ++i)
            given.insert({role.publish(w, i).to.value, role.publish(w, i).word});
        });
      }
      walk(SendRole(s), [&](const SendWork& w, const SendRole& role) {
        if (w.command.kind == CommandKind::signal) {
          given.insert({w.command.peer.value, w.command.word});
          waited.insert({r, role.need(w, 0).word});
        }
        if (w.command.kind == CommandKind::write && w.needs == 2) waited.insert({r, role.need(w, 1).word});
      });
    }
    // A finished chunk is one signal for the senders of all other nodes, of which there is one here.
    EXPECT_EQ(given, waited) << "window " << window;
    EXPECT_EQ(given.empty(), window == 0 || window == 100) << "window " << window;
  }
}

TEST(GemmRsSchedule, TheLastCommandOfTheSendRingIsCallEndAlsoWhenNothingIsSent) {
  const Ranks ranks({2, 2}, {0, 3, 0, 0}, 1, 8);
  for (int32_t r = 0; r < 4; ++r) {
    CommandKind last = CommandKind::write;
    int commands = 0;
    walk(SendRole(ranks.at(r)), [&](const SendWork& w, const SendRole&) {
      last = w.command.kind;
      ++commands;
    });
    EXPECT_EQ(last, CommandKind::call_end);
    EXPECT_EQ(commands, r == 3 ? 2 : 1);  // rank 3 has the only rows on its rail
  }
}

}  // namespace
}  // namespace tilewire::gemm_rs
