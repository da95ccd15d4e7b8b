// The iterators of GEMM+AllReduce by themselves: who does what, in which order.
#include "ops/gemm_ar/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/gemm_ar/layout.h"
#include "ops/gemm_ar/plan.h"
#include "testing/schedule_test_support.h"

namespace tilewire::gemm_ar {
namespace {

using Layout = std::vector<int32_t>;

// The schedules of all ranks of a call.
struct Ranks : ScheduledRanks<ScheduleTables> {
  Ranks(const Layout& layout, int64_t m, const PlanChoice& choice, int64_t n = 26)
      : ScheduledRanks(layout, problem(m, n), choice) {}
  static Problem problem(int64_t m, int64_t n = 26) { return {.m = m, .n = n, .out_dtype = DataType::fp32, .k = 8}; }
};

PlanChoice plan(bool is_one_shot, int64_t window = 0) {
  return {.is_one_shot = is_one_shot,
          .chunk_rows = 5,
          .chunk_cols = 8,
          .window = window,
          .workers = 3,
          .reduce_workers = 2,
          .gather_behind = 1,
          .cursors = {}};
}

TEST(GemmArSchedule, AgentsAreThoseOfTheListOfRoles) {
  std::deque<Ranks> calls;
  for (const bool is_one_shot : {false, true}) calls.emplace_back(Layout{2, 2}, 23, plan(is_one_shot));
  expect_agents_of_all_roles<Roles>(calls);
}

// Both maps of chunks: those that owners have rows for are tested with GEMM+ReduceScatter.
TEST(GemmArSchedule, EachElementIsInOneChunkAndChunksAreDealtOutEvenly) {
  for (const Layout& layout : uneven_layouts()) {
    for (const int64_t m : {1, 4, 23}) {
      const Ranks ranks(layout, m, plan(false));
      const ReductionMap map = ranks.at(0).map;
      std::set<std::pair<int64_t, int64_t>> seen;
      for (int32_t g = 0; g < map.total_chunks(); ++g) {
        const OwnedChunk c = map.at(g);
        EXPECT_EQ(map.global(c), g);
        const RowRange rows = map.rows(c);
        const ColumnRange columns = map.columns(c);
        EXPECT_TRUE(rows.rows() > 0 && columns.cols() > 0);
        for (int64_t r = rows.begin; r < rows.end; ++r) {
          for (int64_t n = columns.begin; n < columns.end; ++n) EXPECT_TRUE(seen.insert({r, n}).second);
        }
      }
      EXPECT_EQ(static_cast<int64_t>(seen.size()), m * 26);
      const int32_t fewest = map.total_chunks() / ranks.size();
      for (int32_t r = 0; r < ranks.size(); ++r) {
        EXPECT_GE(map.chunks_of(Rank{r}), fewest);
        EXPECT_LE(map.chunks_of(Rank{r}), fewest + (map.total_chunks() % ranks.size() == 0 ? 0 : 1));
      }
    }
  }
}

// What a rank has of each chunk at the end of a call, by who leaves it there: it, its node, the network.
struct Gathered {
  std::map<std::pair<int32_t, int32_t>, int> in_node, by_network, collected, finished;  // at, chunk
};

Gathered gather(const Ranks& ranks) {
  Gathered all;
  for (int32_t r = 0; r < ranks.size(); ++r) {
    const Schedule s = ranks.at(r);
    for (int32_t worker = 0; worker < s.reduce_workers; ++worker) {
      walk(FinishRole(s, worker), [&](const OwnedSumWork& w, const FinishRole& role) {
        ++all.finished[{r, s.map.global(w.chunk)}];
        for (int32_t i = 0; i < w.publishes; ++i) {
          const Publish p = role.publish(w, i);
          if (p.word != s.buffers.word(kResultArrived, s.me(), w.chunk.chunk)) continue;
          if (p.to != s.me()) ++all.in_node[{p.to.value, s.map.global(w.chunk)}];
        }
      });
      walk(CollectRole(s, worker), [&](const CollectWork& w, const CollectRole&) {
        ++all.collected[{r, s.map.global(w.chunk)}];
      });
    }
    walk(ForwardRole(s), [&](const ForwardWork& w, const ForwardRole&) {
      ++all.in_node[{w.to.value, s.map.global(w.chunk)}];
    });
    walk(SendRole(s), [&](const SendWork& w, const SendRole&) {
      if (w.kind == SendWork::Kind::result) ++all.by_network[{w.command.peer.value, s.map.global(w.chunk)}];
    });
  }
  return all;
}

TEST(GemmArSchedule, EachFinishedChunkCrossesToEachNodeOnceAndComesToEachRankOnce) {
  for (const Layout& layout : uneven_layouts()) {
    const Ranks ranks(layout, 23, plan(false));
    const Topology t = ranks.topology();
    const Gathered all = gather(ranks);
    const ReductionMap map = ranks.at(0).map;
    size_t others = 0, remote = 0;
    for (int32_t g = 0; g < map.total_chunks(); ++g) {
      const Rank owner = map.at(g).owner;
      EXPECT_EQ(all.finished.count({owner.value, g}), 1u);
      for (int32_t r = 0; r < ranks.size(); ++r) {
        if (Rank{r} == owner) continue;
        ++others;
        const std::pair<int32_t, int32_t> at{r, g};
        const bool is_entry = !t.same_node(owner, Rank{r}) && t.rail_partner(owner, t.node(Rank{r})) == Rank{r};
        remote += is_entry;
        EXPECT_EQ(all.by_network.count(at), is_entry ? 1u : 0u) << testing::PrintToString(layout);
        EXPECT_EQ(all.in_node.count(at), is_entry ? 0u : 1u) << testing::PrintToString(layout);
        EXPECT_EQ(all.collected.count(at), 1u);
      }
    }
    EXPECT_EQ(all.collected.size(), others);
    EXPECT_EQ(all.by_network.size(), remote);
    for (const auto* counts : {&all.in_node, &all.by_network, &all.collected, &all.finished}) {
      for (const auto& [at, times] : *counts) EXPECT_EQ(times, 1);
    }
  }
}

// Sums are wanted by others, results come out of them: first come first, each so far behind as the plan says.
TEST(GemmArSchedule, ResultsAreSentSoManyRoundsBehindTheNodeSums) {
  for (const int32_t behind : {0, 1, 3}) {
    PlanChoice choice = plan(false);
    choice.gather_behind = behind;
    const Ranks ranks({2, 2}, 64, choice);
    for (int32_t r = 0; r < 4; ++r) {
      const Schedule s = ranks.at(r);
      int32_t round = 0, results = 0, sums = 0;
      walk(SendRole(s), [&](const SendWork& w, const SendRole&) {
        if (w.command.kind != CommandKind::write) return;
        if (w.kind == SendWork::Kind::result) {
          EXPECT_EQ(w.chunk.chunk.value, results++);
          EXPECT_TRUE(round == results - 1 + behind || sums == s.map.rail_chunks);
        } else {
          ++sums;
          round = w.chunk.chunk.value;
          EXPECT_LE(round - behind, results);
        }
      });
      EXPECT_EQ(results, s.map.chunks_of(Rank{r}));
      EXPECT_EQ(sums, s.map.rail_chunks);
    }
  }
}

TEST(GemmArSchedule, InOneShotEachRankGetsEachPartAndEachNodeSumOnce) {
  for (const Layout& layout : uneven_layouts()) {
    for (const int64_t m : {1, 23}) {
      const Ranks ranks(layout, m, plan(true));
      const Topology t = ranks.topology();
      std::map<std::tuple<int32_t, int32_t, int32_t>, int> partials, sums;  // at, source or node, chunk
      std::map<std::pair<int32_t, int32_t>, int> finished;
      for (int32_t r = 0; r < ranks.size(); ++r) {
        const Schedule s = ranks.at(r);
        for (int32_t worker = 0; worker < s.workers; ++worker) {
          walk(one_shot::ComputeRole(s, worker), [&](const auto& w, const auto& role) {
            for (int32_t i = 0; i < w.publishes; ++i) {
              ++partials[{role.publish(w, i).to.value, r, s.map.global(w.chunk)}];
            }
          });
        }
        for (int32_t worker = 0; worker < s.reduce_workers; ++worker) {
          walk(one_shot::FinishRole(s, worker), [&](const auto& w, const auto&) {
            ++finished[{r, s.map.global(w.chunk)}];
          });
        }
        walk(one_shot::SendRole(s), [&](const auto& w, const auto&) {
          if (w.command.kind == CommandKind::write) {
            ++sums[{w.command.peer.value, s.here().value, s.map.global(w.chunk)}];
          }
        });
        walk(one_shot::ForwardRole(s), [&](const auto& w, const auto&) {
          ++sums[{w.to.value, t.node(w.adder).value, s.map.global(w.chunk)}];
        });
      }
      const int32_t chunks = ranks.at(0).map.total_chunks();
      size_t parts = 0, node_sums = 0;
      for (int32_t r = 0; r < ranks.size(); ++r) {
        parts += static_cast<size_t>(t.ranks_on(t.node(Rank{r})) * chunks);
        node_sums += static_cast<size_t>((t.nodes - 1) * chunks);
      }
      EXPECT_EQ(partials.size(), parts) << testing::PrintToString(layout);
      EXPECT_EQ(sums.size(), node_sums) << testing::PrintToString(layout);
      EXPECT_EQ(finished.size(), static_cast<size_t>(ranks.size() * chunks));
      for (const auto* counts : {&partials, &sums}) {
        for (const auto& [what, times] : *counts) EXPECT_EQ(times, 1);
      }
    }
  }
}

// A rank sends its share of the node's sum, of few rows too.
TEST(GemmArSchedule, InOneShotEachRankOfANodeAddsUpItsShare) {
  const Ranks ranks({4, 4}, 1, plan(true), 64);
  for (int32_t r = 0; r < 8; ++r) EXPECT_EQ(ranks.at(r).added_by(Rank{r}), 2);
}

// Two pieces of data have bytes in common only where one follows the other in its slot under a window.
TEST(GemmArSchedule, SlotsOfDifferentSourcesAndChunksDoNotOverlap) {
  for (const Layout& layout : uneven_layouts()) {
    for (const auto& [is_one_shot, window] : {std::pair{false, 0}, {false, 2}, {true, 0}}) {
      const PlanChoice choice = plan(is_one_shot, window);
      const Ranks ranks(layout, 23, choice);
      std::map<int32_t, std::map<int64_t, int64_t>> spans;  // of each rank: begin -> end
      const auto use = [&](int32_t at, int64_t begin, int64_t bytes) {
        int64_t& known = spans[at][begin];
        known = std::max(known, begin + bytes);
      };
      for (int32_t r = 0; r < ranks.size(); ++r) {
        const Schedule s = ranks.at(r);
        for (int32_t g = 0; g < s.map.total_chunks(); ++g) {
          const OwnedChunk c = s.map.at(g);
          if (is_one_shot) {
            for (int32_t i = 0; i < s.width(); ++i)
              use(s.source(i).value, s.partial_offset(s.me(), c), s.partial_bytes(c));
            for (int32_t i = 0; i < s.other_nodes(); ++i) {
              use(r, s.received_offset(s.other_node(i), c), s.sum_bytes(c));
            }
            if (s.adder(s.here(), g) == s.me() && s.frame.has_network()) use(r, s.sent_offset(c), s.sum_bytes(c));
          } else {
            use(s.taker(c.owner).value, s.partial_offset(s.me(), c), s.partial_bytes(c));
            use(r, c.owner == s.me() ? s.finished_offset(c) : s.result_offset(c), s.result_chunk_bytes(c));
          }
        }
      }
      const int64_t end_of_half = layout_of(Ranks::problem(23), choice, ranks.context(0)).end;
      for (const auto& [rank, of_rank] : spans) {
        int64_t end = 0;
        for (const auto& [begin, its_end] : of_rank) {
          EXPECT_LE(end, begin) << testing::PrintToString(layout) << " rank " << rank;
          end = its_end;
        }
        EXPECT_LE(end, end_of_half);
      }
    }
  }
}

TEST(GemmArSchedule, TheLastCommandOfTheSendRingIsCallEndAlsoWhenNothingIsSent) {
  for (const bool is_one_shot : {false, true}) {
    const Ranks ranks({2, 2}, 0, plan(is_one_shot));
    for (int32_t r = 0; r < 4; ++r) {
      int commands = 0;
      const auto visit = [&](const auto& w, const auto&) {
        EXPECT_EQ(w.command.kind, CommandKind::call_end);
        ++commands;
      };
      if (is_one_shot) {
        walk(one_shot::SendRole(ranks.at(r)), visit);
      } else {
        walk(SendRole(ranks.at(r)), visit);
      }
      EXPECT_EQ(commands, 1);
    }
  }
}

}  // namespace
}  // namespace tilewire::gemm_ar
