// The iterators of ring attention by themselves: who does what, in which order, and how many bytes that moves.
#include "ops/attention/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/attention/plan.h"
#include "ops/attention/random_calls.h"
#include "testing/schedule_test_support.h"

namespace tilewire::attention {
namespace {

using Layout = std::vector<int32_t>;
using Ranks = ScheduledRanks<ScheduleTables>;

Problem problem(const std::vector<int64_t>& rows, bool is_causal = false, Placement placement = Placement::contiguous) {
  return {.rows = rows,
          .kv_rows = rows,
          .batch = 1,
          .q_heads = 4,
          .kv_heads = 2,
          .head_dim = 64,
          .dtype = DataType::bf16,
          .is_causal = is_causal,
          .placement = placement};
}
PlanChoice plan(bool is_step_major = false, int64_t window = 0) {
  return {.is_step_major = is_step_major,
          .chunk_rows = 64,
          .window = window,
          .tile_rows = 24,
          .group_pairs = 2,
          .workers = 2,
          .cursors = {}};
}

// All pieces of work of a rank's compute workers that are not words.
std::vector<ItemWork> items_of(const Schedule& s) {
  std::vector<ItemWork> items;
  for (int32_t worker = 0; worker < s.workers; ++worker) {
    walk(ComputeRole(s, worker), [&](const ItemWork& w, const ComputeRole&) {
      if (!w.is_end) items.push_back(w);
    });
  }
  return items;
}

// By chunk and receiver: how often it comes there.
using Arrivals = std::map<std::tuple<int32_t, int32_t, int32_t>, int>;
struct Moved {
  Arrivals arrivals;
  std::vector<int64_t> node_bytes, network_bytes;  // that each rank sends
};
Moved moved(const Ranks& ranks) {
  Moved m{{}, std::vector<int64_t>(ranks.size()), std::vector<int64_t>(ranks.size())};
  for (int32_t r = 0; r < ranks.size(); ++r) {
    const Schedule s = ranks.at(r);
    const auto comes = [&](ChunkRef c, Rank to) { ++m.arrivals[{c.source.value, c.chunk.value, to.value}]; };
    walk(LoadRole(s), [&](const LoadWork& w, const LoadRole&) { comes(w.chunk, Rank{r}); });
    const auto copy = [&](const CopyWork& w, const auto&) {
      if (w.is_end) return;
      comes(w.chunk, w.to);
      m.node_bytes[r] += s.bytes(w.chunk);
    };
    if (s.local_peers() > 0) walk(PushRole(s), copy);
    if (!s.frame.has_network()) continue;
    if (s.local_peers() > 0) walk(ForwardRole(s), copy);
    walk(SendRole(s), [&](const SendWork& w, const SendRole&) {
      if (w.command.kind != CommandKind::write) return;
      comes(w.chunk, w.command.peer);
      m.network_bytes[r] += int64_t{w.command.units} * kWireUnitBytes;
    });
  }
  return m;
}

TEST(AttentionSchedule, AgentsAreThoseOfTheListOfRoles) {
  std::deque<Ranks> calls;
  for (const bool is_step_major : {false, true}) {
    calls.emplace_back(Layout{2, 2}, problem({64, 64, 64, 64}), plan(is_step_major, 1));
  }
  expect_agents_of_all_roles<Roles>(calls);
}

TEST(AttentionSchedule, EachQueryMeetsEachKeyThatItSeesOnce) {
  for (const Layout& layout : uneven_layouts()) {
    Dice dice(11);
    for (int round = 0; round < 12; ++round) {
      const int32_t count = ranks_of(layout);
      const Problem p = random_problem(count, 90, dice);
      PlanChoice choice = with_own(random_shared(p, count, dice), dice);
      const Ranks ranks(layout, p, choice);
      for (int32_t r = 0; r < count; ++r) {
        const Schedule s = ranks.at(r);
        const ScheduleTables tables(p, choice, ranks.context(r));
        std::map<std::pair<int64_t, int64_t>, int> met;  // item and block
        std::map<int64_t, std::pair<int, int>> ends;
        for (const ItemWork& w : items_of(s)) {
          ends[w.item].first += w.is_first;
          ends[w.item].second += w.is_last;
          for (int32_t i = 0; i < w.blocks.count; ++i) {
            const ChunkRef block{w.source, Chunk{w.blocks.first + i}};
            if (s.is_looked_at(w.tile, block)) ++met[{w.item, s.blocks.global(block)}];
          }
        }
        ASSERT_EQ(static_cast<int64_t>(ends.size()), s.items());
        for (const auto& [item, times] : ends) ASSERT_EQ(times, (std::pair{1, 1})) << "item " << item;
        // Of the first item of each tile; the others are walked alike.
        for (int32_t tile = 0; s.items() > 0 && tile < s.tiles; ++tile) {
          const RowRange rows = s.tile_range(tile);
          for (int64_t row = rows.begin; row < rows.end; ++row) {
            const KeySpan span = tables.sight().query_spans()[static_cast<size_t>(row)];
            for (int32_t g = 0; g < s.blocks.total_chunks(); ++g) {
              const RowRange keys = s.blocks.rows(s.blocks.at(g));
              bool sees = false;
              for (int64_t k = keys.begin; k < keys.end; ++k) {
                sees = sees || span.holds(tables.sight().key_positions()[static_cast<size_t>(k)]);
              }
              const int times = met.count({tile, g}) == 0 ? 0 : met.at({tile, g});
              ASSERT_LE(times, 1);
              ASSERT_GE(times, sees ? 1 : 0) << p.text() << " row " << row << " block " << g;
            }
          }
        }
      }
    }
  }
}

TEST(AttentionSchedule, EachChunkComesOnceToEachRankThatWantsItAndToThoseThatForwardIt) {
  for (const Layout& layout : uneven_layouts()) {
    Dice dice(17);
    for (int round = 0; round < 12; ++round) {
      const int32_t count = ranks_of(layout);
      const Problem p = random_problem(count, 140, dice);
      const Ranks ranks(layout, p, with_own(random_shared(p, count, dice), dice));
      const Moved m = moved(ranks);
      for (const auto& [where, times] : m.arrivals) ASSERT_EQ(times, 1);
      for (int32_t to = 0; to < count; ++to) {
        const Schedule s = ranks.at(to);
        for (int32_t from = 0; from < count; ++from) {
          for (int32_t c = 0; c < s.chunks_of(Rank{from}); ++c) {
            const ChunkRef chunk{Rank{from}, Chunk{c}};
            const bool comes = m.arrivals.count({from, c, to}) == 1;
            ASSERT_EQ(comes, s.comes(chunk)) << "chunk " << c << " of " << from << " at " << to;
            ASSERT_TRUE(comes || !s.wants(Rank{to}, chunk));
          }
        }
      }
    }
  }
}

// The least there can be: full attention needs all keys at all ranks, so each shard goes once to every other node, and
// inside a node once to every other rank, from wherever it comes in. K/V of grouped heads are not multiplied.
TEST(AttentionSchedule, FullAttentionMovesTheOptimum) {
  for (const Layout& layout : uneven_layouts()) {
    for (const bool is_step_major : {false, true}) {
      std::vector<int64_t> rows;
      for (int32_t r = 0; r < ranks_of(layout); ++r) rows.push_back(10 + r * 30 % 100);
      Problem p = problem(rows);
      p.q_heads = 16;
      const Ranks ranks(layout, p, plan(is_step_major));
      const Moved m = moved(ranks);
      const Topology t = ranks.topology();
      int64_t node_bytes = 0;
      for (int32_t r = 0; r < t.ranks; ++r) {
        const int64_t shard = rows[static_cast<size_t>(r)] * 2 * p.kv_heads * p.head_dim * 2;
        EXPECT_EQ(m.network_bytes[static_cast<size_t>(r)], shard * (t.nodes - 1)) << "rank " << r;
        for (int32_t n = 0; n < t.nodes; ++n) node_bytes += shard * (t.ranks_on(Node{n}) - 1);
      }
      int64_t sent = 0;
      for (const int64_t bytes : m.node_bytes) sent += bytes;
      EXPECT_EQ(sent, node_bytes);
    }
  }
}

// Causal over contiguous shards: nobody needs the keys of ranks behind it.
TEST(AttentionSchedule, MaskedChunksDoNotMove) {
  const Ranks ranks({1, 1, 1, 1}, problem({64, 64, 64, 64}, true), plan());
  const Moved m = moved(ranks);
  const int64_t shard = 64 * 2 * 2 * 64 * 2;
  EXPECT_EQ(m.network_bytes, (std::vector<int64_t>{3 * shard, 2 * shard, shard, 0}));
  Problem documents = problem({64, 64, 64, 64});
  documents.documents = documents.kv_documents = {0, 64, 192, 200};
  const Moved of_documents = moved(Ranks({1, 1, 1, 1}, documents, plan()));
  EXPECT_EQ(of_documents.network_bytes, (std::vector<int64_t>{0, shard, shard, 0})) << "rank 3 has its own, and pads";
}

// Where queries are causal. 1 where all ranks have as much to do.
double slowest_to_mean(Placement placement, int32_t ranks, int64_t total) {
  const std::vector<int64_t> rows =
      placement == Placement::zigzag ? zigzag_rows(total, ranks) : dealt_evenly(total, ranks);
  const Problem p = problem(rows, true, placement);
  const MaskRule mask = p.mask();
  double slowest = 0, sum = 0;
  for (const Positions& of_rank : p.positions()) {
    double scores = 0;
    for (const int64_t q : expanded(of_rank)) {
      const KeySpan span = mask.span_of(q);
      scores += static_cast<double>(std::min(span.end, total) - span.begin);
    }
    slowest = std::max(slowest, scores);
    sum += scores;
  }
  return slowest / (sum / ranks);
}

// And so has each rank in blocks of its plan, which is what it computes.
double slowest_to_mean_of_blocks(int32_t ranks, int64_t total) {
  const Problem p = problem(zigzag_rows(total, ranks), true, Placement::zigzag);
  const Ranks all(std::vector<int32_t>(static_cast<size_t>(ranks), 1), p, plan());
  double slowest = 0, sum = 0;
  for (int32_t r = 0; r < ranks; ++r) {
    const Schedule s = all.at(r);
    double scores = 0;
    for (const ItemWork& w : items_of(s)) {
      for (int32_t i = 0; i < w.blocks.count; ++i) {
        const ChunkRef block{w.source, Chunk{w.blocks.first + i}};
        if (s.is_looked_at(w.tile, block)) {
          scores += static_cast<double>(s.tile_range(w.tile).rows() * s.blocks.rows(block).rows());
        }
      }
    }
    slowest = std::max(slowest, scores);
    sum += scores;
  }
  return slowest / (sum / ranks);
}

TEST(AttentionSchedule, AZigzagBalancesCausalRanks) {
  for (const int32_t ranks : {2, 4, 8}) {
    EXPECT_LE(slowest_to_mean(Placement::zigzag, ranks, 8192), 1.03) << ranks;
    EXPECT_LE(slowest_to_mean_of_blocks(ranks, 1024 * ranks), 1.03) << ranks;
    EXPECT_GT(slowest_to_mean(Placement::contiguous, ranks, 8192), 1.4) << "without it there is something to balance";
  }
  EXPECT_LE(slowest_to_mean(Placement::zigzag, 4, 2999), 1.03);
}

// Head after head, the own keys first, then in the order of sources; so the first item needs one head only.
TEST(AttentionSchedule, ItemsGoHeadByHeadAndSourceBySource) {
  const Ranks ranks({2, 2}, problem({64, 64, 64, 64}), plan());
  const Schedule s = ranks.at(1);
  std::vector<int32_t> sources;
  int32_t last_pair = 0;
  walk(ComputeRole(s, 0), [&](const ItemWork& w, const ComputeRole&) {
    if (w.item == 0) sources.push_back(w.source.value);
    EXPECT_GE(w.pair, last_pair);
    last_pair = w.pair;
  });
  EXPECT_EQ(sources, (std::vector<int32_t>{1, 0, 2, 3}));
  for (int32_t at = 0; at < 4; ++at) {
    for (int32_t place = 0; place < 4; ++place) {
      EXPECT_EQ(s.place_of(Rank{at}, s.source_at(Rank{at}, place)), place);
    }
  }
}

// The order in which words follow fixes that of additions: it is the same in both orders and for all plans.
TEST(AttentionSchedule, EveryPlanAddsTheSourcesOfAnItemInOneOrder) {
  Dice dice(23);
  for (const Layout& layout : uneven_layouts()) {
    const int32_t count = ranks_of(layout);
    const Problem p = random_problem(count, 90, dice);
    std::map<std::pair<int32_t, int64_t>, std::vector<int32_t>> first;
    for (int round = 0; round < 6; ++round) {
      PlanChoice choice = with_own(random_shared(p, count, dice), dice);
      choice.tile_rows = 30;
      choice.workers = 1;
      const Ranks ranks(layout, p, choice);
      for (int32_t r = 0; r < count; ++r) {
        std::map<int64_t, std::vector<int32_t>> order;
        for (const ItemWork& w : items_of(ranks.at(r))) {
          if (w.blocks.count > 0) order[w.item].push_back(w.source.value);
        }
        for (const auto& [item, sources] : order) {
          const auto [known, is_new] = first.try_emplace({r, item}, sources);
          ASSERT_TRUE(is_new || known->second == sources);
        }
      }
    }
  }
}

TEST(AttentionSchedule, OfAGroupTheItemsWithMostWorkComeFirst) {
  PlanChoice choice = plan();
  choice.tile_rows = 32;
  const Ranks ranks({1, 1}, problem({256, 256}, true), choice);
  const Schedule s = ranks.at(1);
  std::vector<int32_t> tiles;
  for (const ItemWork& w : items_of(s)) {
    if (w.is_last && w.pair == 0 && w.head == 0) tiles.push_back(w.tile);
  }
  EXPECT_TRUE(std::is_sorted(s.tile_order, s.tile_order + s.tiles, std::greater<>()))
      << "causal: the last rows see most";
  EXPECT_EQ(static_cast<int32_t>(tiles.size()), s.tiles);
}

TEST(AttentionSchedule, GroupsGrowFromOneHeadOn) {
  Problem p = problem({64, 64});
  p.kv_heads = p.q_heads = 11;
  PlanChoice choice = plan();
  choice.group_pairs = 4;
  const Schedule s = Ranks({2}, p, choice).at(0);
  std::vector<int32_t> begins{0};
  while (begins.back() < s.pairs) begins.push_back(s.group_end(begins.back()));
  EXPECT_EQ(begins, (std::vector<int32_t>{0, 1, 2, 4, 8, 11}));
  choice.window = 2;
  const Schedule windowed = Ranks({2}, p, choice).at(0);
  EXPECT_EQ(windowed.group_end(8), 10) << "a group has to fit the window";
}

// Groups of one or two items were all dealt to the first workers, so that one worker did most of a small call.
TEST(AttentionSchedule, ItemsAreDealtToAllWorkersHoweverSmallTheirGroups) {
  Problem p = problem({64, 64});
  p.kv_heads = p.q_heads = 8;
  for (const bool is_step_major : {false, true}) {
    PlanChoice choice = plan(is_step_major);
    choice.workers = 4;
    choice.tile_rows = 64;
    for (const int32_t group_pairs : {1, 2, 4, 8}) {
      choice.group_pairs = group_pairs;
      const Ranks ranks({2}, p, choice);
      const Schedule s = ranks.at(0);
      std::vector<int32_t> takers(8, -1);
      for (int32_t worker = 0; worker < 4; ++worker) {
        ItemWork w;
        for (ComputeRole role(s, worker); role.next(w);) {
          if (w.is_last) takers[static_cast<size_t>(w.item)] = worker;
        }
      }
      EXPECT_EQ(takers, (std::vector<int32_t>{0, 1, 2, 3, 3, 2, 1, 0})) << "groups of up to " << group_pairs;
    }
  }
}

}  // namespace
}  // namespace tilewire::attention
