// The tables of a routing: where each row goes, as all ranks of a node see it, and how much is sent.
#include "ops/moe_dispatch/routing_tables.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/moe_dispatch/reference.h"
#include "ops/moe_dispatch/routing_fixture.h"
#include "ops/moe_dispatch/row_moves.h"
#include "ops/moe_dispatch/sample_routing.h"
#include "schedule/topology_tables.h"
#include "testing/schedule_test_support.h"
#include "testing/simulation_test_support.h"

namespace tilewire::moe_dispatch {
namespace {

struct Case {
  std::vector<int32_t> layout;
  std::vector<int64_t> tokens;
  int32_t experts = 8;
  int32_t top_k = 2;
  int64_t block_tokens = 4;
  Skew skew = Skew::uniform;
};

// The schedules of all ranks for one routing.
class Ranks {
 public:
  explicit Ranks(const Case& c) : Ranks(c, draw_all_routes(c.skew, c.tokens, c.top_k, c.experts, 5)) {}
  Ranks(const Case& c, Routes routes)
      : topology_(TopologyTables::from_layout(c.layout)), routed_(std::move(routes), int64_t{1} << 40) {
    Problem problem{.rank_of_expert = {}, .h = 4, .top_k = c.top_k, .most_rows = 1 << 20, .planned_tokens = 1};
    for (int32_t e = 0; e < c.experts; ++e) problem.rank_of_expert.push_back(e % topology_.view().ranks);
    problem.most_tokens = 1 << 14;
    problem.cols = 4;
    const PlanChoice choice{.block_tokens = c.block_tokens, .window = 2, .chunk_tokens = 3, .pieces = 2, .cursors = {}};
    for (int32_t r = 0; r < topology_.view().ranks; ++r) {
      const PlanContext context{
          .topology = topology_.view(),
          .me = Rank{r},
          .arena = {.flags = {.ranks = topology_.view().ranks, .max_chunks = 1 << 14}, .half_stride_bytes = 1 << 30},
          .machine = {}};
      tables_.emplace_back(problem, choice, context);
      schedules.push_back(tables_.back().schedule(1));
      routed_.apply(schedules.back());
    }
  }
  Topology topology() const { return topology_.view(); }
  const Routes& routes() const { return routed_.routes(); }

  std::vector<Schedule> schedules;

 private:
  TopologyTables topology_;
  RoutedRanks routed_;
  std::vector<ScheduleTables> tables_;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Skew skew : {Skew::uniform, Skew::zipf, Skew::one, Skew::with_none}) {
    all.push_back({.layout = {2, 2}, .tokens = {9, 0, 14, 3}, .skew = skew});
    all.push_back({.layout = {1, 3}, .tokens = {5, 7, 1, 8}, .experts = 3, .top_k = 3, .skew = skew});
    all.push_back({.layout = {3}, .tokens = {6, 6, 6}, .experts = 60, .top_k = 6, .block_tokens = 100, .skew = skew});
  }
  return all;
}

// In every round the cells of a rank fill its rows from 0 on, without a gap and without a row that two have.
TEST(MoeRouting, RowsOfARoundHaveOnePlaceEach) {
  for (const Case& c : cases()) {
    const Ranks ranks(c);
    for (const Schedule& s : ranks.schedules) {
      for (int32_t round = 0; round < s.rounds(); ++round) {
        std::vector<int> taken;
        for (int32_t e = 0; e < s.own_experts(); ++e) {
          for (int32_t p = 0; p < s.ranks(); ++p) {
            const Cell& cell = s.cell(round, s.first_own_place() + e, p);
            taken.resize(std::max(taken.size(), static_cast<size_t>(cell.begin + cell.rows)), 0);
            for (int32_t row = 0; row < cell.rows; ++row) ++taken[static_cast<size_t>(cell.begin + row)];
          }
        }
        for (const int count : taken) ASSERT_EQ(count, 1);
        ASSERT_EQ(s.routing->group_begin[round * (s.routing->groups + 1) + s.routing->groups],
                  static_cast<int32_t>(taken.size()));
      }
    }
  }
}

// Ranks of a node have made them by themselves.
TEST(MoeRouting, AllRanksOfANodePlaceRowsAlike) {
  for (const Case& c : cases()) {
    const Ranks ranks(c);
    for (const Schedule& a : ranks.schedules) {
      for (const Schedule& b : ranks.schedules) {
        if (!ranks.topology().same_node(a.me(), b.me())) continue;
        ASSERT_EQ(a.rounds(), b.rounds());
        for (int32_t round = 0; round < a.rounds(); ++round) {
          for (int32_t place = 0; place < a.routing->places; ++place) {
            for (int32_t p = 0; p < a.ranks(); ++p) {
              ASSERT_EQ(a.cell(round, place, p).begin, b.cell(round, place, p).begin);
              ASSERT_EQ(a.cell(round, place, p).rows, b.cell(round, place, p).rows);
            }
          }
        }
      }
    }
  }
}

TEST(MoeRouting, ResultsLieByExpertThenByRankWhateverTheRounds) {
  for (const Case& c : cases()) {
    const Ranks ranks(c);
    for (const Schedule& s : ranks.schedules) {
      int64_t next = 0;
      for (int32_t e = 0; e < s.own_experts(); ++e) {
        ASSERT_EQ(s.routing->offsets[e], next);
        for (int32_t source = 0; source < s.ranks(); ++source) {
          for (int32_t round = 0; round < s.rounds(); ++round) {
            const int32_t p = s.position_of[source];
            const int64_t at = (int64_t{round} * s.own_experts() + e) * s.ranks() + p;
            ASSERT_EQ(s.routing->result_row[at], next);
            next += s.cell(round, s.first_own_place() + e, p).rows;
          }
        }
      }
      ASSERT_EQ(s.routing->offsets[s.own_experts()], next);
    }
  }
}

// What push and forward do with each row, by what stands in front of a token that comes from another node: every row of a
// round is written once, with the token and slot that the reference has there; and its result goes where that lies.
TEST(MoeRouting, EachRowIsMovedOnceToWhereItBelongs) {
  for (const Case& c : cases()) {
    const Ranks ranks(c);
    const Topology t = ranks.topology();
    using Row = std::tuple<int32_t, int32_t, int64_t>;  // rank, round, row
    std::map<Row, std::tuple<int32_t, RowOrigin>> written;
    const auto note = [&](Rank source, int32_t round, const RowMove& move) {
      EXPECT_TRUE(written.insert({{move.to.value, round, move.row}, {source.value, move.origin}}).second);
    };
    for (const Schedule& s : ranks.schedules) {
      PushWork push;
      for (PushRole role(s); role.next(push);) {
        for (int32_t i = 0; i < rows_of(s, push); ++i) note(s.me(), push.round, row_of(s, push, i));
      }
      PackWork pack;
      for (PackRole role(s); s.frame.has_network() && role.next(pack);) {
        if (pack.is_gate) continue;
        const Schedule& entry = ranks.schedules[static_cast<size_t>(t.rail_partner(s.me(), pack.chunk.to).value)];
        ForwardWork forward;
        forward.source = s.me();
        forward.round = pack.chunk.round;
        for (int32_t i = 0; i < rows_of(s, pack); ++i) {
          const int32_t token = token_of(s, pack, i);
          for (int32_t slot = 0; slot < c.top_k; ++slot) {
            const HeaderSlot at = header_of(s, pack.chunk.to, token, slot);
            if (at.place >= 0) note(s.me(), forward.round, row_of(entry, forward, {token, slot}, at));
          }
        }
      }
    }
    std::vector<int32_t> rank_of_expert;
    for (int32_t e = 0; e < c.experts; ++e) rank_of_expert.push_back(e % t.ranks);
    size_t rows = 0, found_rows = 0;
    for (const Schedule& s : ranks.schedules) {
      const auto expected = reference_rows(ranks.routes().ids, c.top_k, rank_of_expert, s.me().value);
      rows += expected.size();
      TileWork w;
      for (ComputeRole role(s, 0); role.next(w);) {
        for (int32_t p = w.first; !w.is_gate && !w.is_round_end && w.columns.is_gather_copy && p <= w.last; ++p) {
          const ResultRows results = results_of(s, w, p);
          for (int64_t row = results.rows.begin; row < results.rows.end; ++row) {
            const ResultRow alone = result_of(s, w, row);
            ASSERT_EQ(std::pair(alone.position, alone.result), std::pair(p, results.result + row - results.rows.begin));
            const auto found = written.find({s.me().value, w.round, row});
            ASSERT_NE(found, written.end());
            const auto& [source, origin] = found->second;
            const ReferenceRow& wanted = expected.at(static_cast<size_t>(results.result + row - results.rows.begin));
            ASSERT_EQ(std::tuple(source, origin.token, origin.slot),
                      std::tuple(wanted.rank, wanted.token, wanted.slot));
            written.erase(found);
            ++found_rows;
          }
        }
      }
    }
    EXPECT_TRUE(written.empty()) << written.size() << " rows for nobody";
    EXPECT_EQ(found_rows, rows);
  }
}

// The words that each role gives and the ones that others wait for are the same, by what each rank has worked out.
TEST(MoeRouting, EachRowIsSentByOneAndAwaitedByOne) {
  for (const Case& c : cases()) {
    const Ranks ranks(c);
    std::set<std::tuple<int32_t, uint32_t>> given, awaited;
    for (const Schedule& s : ranks.schedules) {
      const auto note = [&](const auto& role, const auto& w) {
        for (int32_t i = 0; i < w.publishes; ++i) {
          const Publish p = role.publish(w, i);
          if (p.word >= s.arrived(Rank{0}, 0, 0) && p.word < s.packed(Node{0}, 0, 0)) {
            EXPECT_TRUE(given.insert({p.to.value, p.word}).second);
          }
        }
      };
      PushWork push;
      for (PushRole role(s); role.next(push);) note(role, push);
      ForwardWork forward;
      for (ForwardRole role(s); role.next(forward);) note(role, forward);
      TileWork tile;
      for (ComputeRole role(s, 0); role.next(tile);) {
        for (int32_t i = 0; i < tile.needs; ++i) {
          const uint32_t word = role.need(tile, i).word;
          if (word >= s.arrived(Rank{0}, 0, 0) && word < s.packed(Node{0}, 0, 0)) {
            awaited.insert({s.me().value, word});
          }
        }
      }
    }
    EXPECT_EQ(given, awaited);
  }
}

TEST(MoeRouting, ExpertsWithoutRowsHaveNoWork) {
  const Ranks ranks({.layout = {1, 1}, .tokens = {1, 0}, .experts = 512, .top_k = 1});
  int tiles = 0, words = 0;
  for (const Schedule& s : ranks.schedules) {
    TileWork w;
    for (ComputeRole role(s, 0); role.next(w);) tiles += w.is_gate ? 0 : 1;
    PushWork push;
    for (PushRole role(s); role.next(push);) words += push.publishes;
    ForwardWork forward;
    for (ForwardRole role(s); role.next(forward);) words += forward.publishes;
  }
  EXPECT_EQ(tiles, 2);  // one of its columns, and its origin
  EXPECT_EQ(words, 1);
}

TEST(MoeRouting, AgentsAreThoseOfTheListOfRoles) {
  Problem problem{.rank_of_expert = {0, 1, 2, 3}, .h = 4, .top_k = 2, .most_rows = 100};
  problem.most_tokens = problem.planned_tokens = 8;
  std::deque<ScheduledRanks<SampledTables>> calls;
  calls.emplace_back(std::vector<int32_t>{2, 2}, problem, PlanChoice{.block_tokens = 4, .cursors = {}});
  expect_agents_of_all_roles<Roles>(calls);
}

// ---- bytes between nodes ----

// Bytes that rank 0 gives to its proxy, its record aside.
int64_t bytes_sent(const Schedule& s) {
  int64_t bytes = 0;
  SendWork send;
  for (SendRole role(s); role.next(send);) {
    if (send.kind == SendWork::Kind::tokens) bytes += int64_t{send.command.units} * kWireUnitBytes;
  }
  return bytes;
}

// Of all tokens to all nodes, as whole-buffer sending would, against those that are needed: 1 - (1 - 1/Q)^k of them.
TEST(MoeRouting, BytesBetweenNodesAreTheExpectedNumberOfDistinctTokensAndNodes) {
  constexpr int32_t kTopK = 8;
  constexpr int64_t kTokens = 4000;
  for (const int32_t nodes : {2, 4, 8}) {
    Case c{.layout = std::vector<int32_t>(static_cast<size_t>(nodes), 1), .tokens = {}, .experts = 64, .top_k = kTopK};
    c.tokens.assign(static_cast<size_t>(nodes), 0);
    c.tokens[0] = kTokens;
    c.block_tokens = 512;
    const Ranks ranks(c);
    const double distinct = static_cast<double>(bytes_sent(ranks.schedules[0])) /
                            static_cast<double>(ranks.schedules[0].buffers.token_pitch);
    const double expected = (nodes - 1) * (1 - std::pow(1 - 1.0 / nodes, kTopK)) * kTokens;
    EXPECT_NEAR(distinct / expected, 1, 0.02) << nodes << " nodes";
    EXPECT_LE(distinct, (nodes - 1) * kTokens);
  }
}

// Eight experts of each token, on two of four nodes: it goes to those of the two that are not its own, once each, and
// every one of its rows is told there.
TEST(MoeRouting, GroupLimitedTokensGoToAsManyNodesAsTheirGroups) {
  constexpr int64_t kTokens = 1000;
  constexpr int32_t kExperts = 64, kTopK = 8, kNodes = 4;
  Case c{.layout = {1, 1, 1, 1}, .tokens = {kTokens, 0, 0, 0}, .experts = kExperts, .top_k = kTopK, .block_tokens = 64};
  Routes routes{.top_k = kTopK, .ids = std::vector<std::vector<int32_t>>(kNodes)};
  Dice dice(3);
  int64_t remote_groups = 0, remote_rows = 0;
  for (int64_t token = 0; token < kTokens; ++token) {
    const auto first = static_cast<int32_t>(dice.below(kNodes));
    const int32_t second = (first + 1 + static_cast<int32_t>(dice.below(kNodes - 1))) % kNodes;
    for (int32_t slot = 0; slot < kTopK; ++slot) {
      const int32_t node = slot % 2 == 0 ? first : second;  // expert e is on rank e mod 4
      routes.ids[0].push_back(node + kNodes * static_cast<int32_t>(dice.below(kExperts / kNodes)));
    }
    remote_groups += (first != 0 ? 1 : 0) + (second != 0 ? 1 : 0);
    remote_rows += kTopK / 2 * ((first != 0 ? 1 : 0) + (second != 0 ? 1 : 0));
  }
  const Ranks grouped(c, std::move(routes));
  const Schedule& s = grouped.schedules[0];
  EXPECT_EQ(bytes_sent(s), remote_groups * s.buffers.token_pitch);
  int64_t rows = 0;
  PackWork w;
  for (PackRole role(s); role.next(w);) {
    for (int32_t i = 0; !w.is_gate && i < rows_of(s, w); ++i) {
      for (int32_t slot = 0; slot < kTopK; ++slot) {
        rows += header_of(s, w.chunk.to, token_of(s, w, i), slot).place >= 0 ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(rows, remote_rows);
}

TEST(MoeRouting, ASampledRoutingGivesEveryExpertTheSame) {
  for (const int32_t experts : {1, 7, 8, 60, 256}) {
    Problem problem{.rank_of_expert = std::vector<int32_t>(static_cast<size_t>(experts), 0), .h = 1, .top_k = 4};
    std::vector<int> counts(static_cast<size_t>(experts), 0);
    for (int64_t token = 0; token < experts; ++token) {
      for (int32_t slot = 0; slot < 4; ++slot) {
        ++counts[static_cast<size_t>(sample_expert(problem, Rank{1}, token, slot))];
      }
    }
    for (const int count : counts) EXPECT_EQ(count, 4) << experts;
  }
}

TEST(MoeRouting, SizesAreRoundedUpByLittleAndToFewNumbers) {
  std::set<int64_t> seen;
  int64_t last = 0;
  for (int64_t size = 0; size <= 4096; ++size) {
    const int64_t rounded = rounded_size(size);
    EXPECT_GE(rounded, std::max(size, last));
    if (size > 16) {
      EXPECT_LE(static_cast<double>(rounded), 1.13 * static_cast<double>(size));
    }
    seen.insert(last = rounded);
  }
  EXPECT_LE(seen.size(), 80u);
}

}  // namespace
}  // namespace tilewire::moe_dispatch
