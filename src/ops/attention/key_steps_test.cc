// The steps in which a kernel takes keys: none is forgotten, none comes twice,
// and what is masked is said.
#include "ops/attention/key_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/error_of.h"
#include "ops/attention/random_calls.h"
#include "testing/schedule_test_support.h"

namespace tilewire::attention {
namespace {

constexpr int32_t kStepRows = 16;
using Ranks = ScheduledRanks<ScheduleTables>;

std::vector<KeySpan> spans_of(const Schedule& s, int32_t tile) {
  const RowRange rows = s.tile_range(tile);
  return {s.query_spans + rows.begin, s.query_spans + rows.end};
}

// What the step says of itself, against the positions of its keys.
void expect_step_is_right(const Schedule& s, const StepWalk::Step& step, Rank source,
                          const std::vector<KeySpan>& spans) {
  const int64_t row = int64_t{step.number} * kStepRows;
  const RowRange block = s.rows_of({source, Chunk{static_cast<int32_t>(row / s.blocks.chunk_rows)}});
  ASSERT_LT(row, block.end);
  ASSERT_EQ(step.keys.keys, std::min<int64_t>(kStepRows, block.end - row));
  const int64_t* positions = s.key_positions + s.blocks.row_begin[source.value] + row;
  const std::vector<int64_t> of(positions, positions + step.keys.keys);
  ASSERT_EQ(step.keys.least, *std::min_element(of.begin(), of.end()));
  ASSERT_EQ(step.keys.most, *std::max_element(of.begin(), of.end()));
  std::vector<int64_t> run(of.size());
  std::iota(run.begin(), run.end(), of.front());
  ASSERT_EQ(step.keys.is_run != 0, of == run);
  bool all_seen = step.keys.keys == kStepRows;
  for (const KeySpan& span : spans) {
    for (const int64_t position : of) all_seen = all_seen && span.holds(position);
  }
  ASSERT_EQ(step.is_masked, !all_seen);
}

// The keys of the source that the tile's walk comes to, by row.
std::set<int64_t> walked(const Schedule& s, const KeyStepTable& table, int32_t tile, Rank source) {
  const std::vector<KeySpan> spans = spans_of(s, tile);
  const KeySteps steps = table.view();
  std::set<int64_t> keys;
  const StepRange range = steps.of_tiles[int64_t{tile} * s.ranks() + source.value];
  const BlockRange blocks = s.looked_at(tile, source);
  int32_t behind = 0, first = -1;
  bool has_ended = false;
  std::vector<int32_t> numbers, in_parts;
  StepWalk walk(s, steps, tile, source);
  for (StepWalk::Step step; walk.next(step);) {
    const ChunkRef block{source, Chunk{step.number / steps.block_steps}};
    EXPECT_TRUE(s.wants(s.me(), block)) << "keys that do not come are not waited for";
    EXPECT_TRUE(s.is_looked_at(tile, block) && blocks.first <= block.chunk.value &&
                block.chunk.value < blocks.first + blocks.count)
        << "and the others are: by block";
    EXPECT_FALSE(has_ended) << "the last one says so";
    has_ended = step.is_last;
    numbers.push_back(step.number);
    EXPECT_TRUE(may_meet(s.tile_spans[tile], {step.keys.least, step.keys.most})) << "what no row sees is left out";
    EXPECT_GE(step.number, behind) << "in order, each once";
    expect_step_is_right(s, step, source, spans);
    if (first < 0) first = step.number;
    behind = step.number + 1;
    for (int64_t i = 0; i < step.keys.keys; ++i) keys.insert(int64_t{step.number} * kStepRows + i);
  }
  EXPECT_TRUE(first < 0 ? range.count == 0 : range.first == first && range.first + range.count == behind)
      << "it begins and ends with what is seen";
  EXPECT_EQ(has_ended, first >= 0);
  for (int32_t at = range.first, end = range.first + range.count; at < end;) {
    const int32_t count = std::min(end - at, steps.block_steps - at % steps.block_steps);
    StepWalk part(TileBounds(s.tile_spans[tile]), steps.step_rows, {at, count},
                  steps.steps + steps.step_begin[source.value]);
    for (StepWalk::Step step; part.next(step);) in_parts.push_back(step.number);
    at += count;
  }
  EXPECT_EQ(in_parts, numbers) << "block by block";
  return keys;
}

void expect_each_seen_key_is_walked(const Schedule& s) {
  const KeyStepTable table(s, kStepRows);
  for (int32_t tile = 0; tile < s.tiles; ++tile) {
    const std::vector<KeySpan> spans = spans_of(s, tile);
    for (int32_t r = 0; r < s.ranks(); ++r) {
      const std::set<int64_t> keys = walked(s, table, tile, Rank{r});
      for (int64_t row = 0; row < s.blocks.rows_of(Rank{r}); ++row) {
        const int64_t position = s.key_positions[s.blocks.row_begin[r] + row];
        const bool is_seen =
            std::any_of(spans.begin(), spans.end(), [&](const KeySpan& span) { return span.holds(position); });
        ASSERT_TRUE(!is_seen || keys.count(row) == 1) << "tile " << tile << ", source " << r << ", row " << row;
      }
    }
  }
}

TEST(KeySteps, ATileWalksEachKeyThatItsRowsSeeOnce) {
  Dice dice(17);
  for (int call = 0; call < 60; ++call) {
    const int32_t count = 1 + static_cast<int32_t>(dice.below(4));
    Problem p = random_problem(count, 200, dice);
    if (p.kv_heads == 0) p.kv_heads = p.q_heads = 1;
    const Ranks ranks({count}, p, with_own(random_shared(p, count, dice), dice));
    for (int32_t r = 0; r < count; ++r) {
      expect_each_seen_key_is_walked(ranks.at(r));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(KeySteps, StepsThatNoRowSeesAreLeftOutInsideOfAChunkToo) {
  const Problem p{
      .rows = {256}, .kv_rows = {256}, .batch = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 64, .is_causal = true};
  const Ranks ranks({1}, p, PlanChoice{.chunk_rows = 256, .tile_rows = 64, .cursors = {}});
  const Schedule s = ranks.at(0);
  const KeyStepTable table(s, kStepRows);
  for (int32_t tile = 0; tile < s.tiles; ++tile) {
    EXPECT_EQ(walked(s, table, tile, Rank{0}).size(), static_cast<size_t>(64 * (tile + 1)));
  }
}

// A tile whose rows are of the first and the last document. The keys between
// them are not sent: who waited for them would for ever.
TEST(KeySteps, ChunksThatDoNotComeAreLeftOutBetweenThoseThatDo) {
  Problem p{.rows = {64, 64}, .kv_rows = {0, 192}, .batch = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 64};
  p.placement = Placement::given;
  p.given = {{{0, 32}, {96, 32}}, {{32, 64}}};
  p.given_kv = {{}, {{0, 192}}};
  p.documents = {0, 32, 96, 128};
  p.kv_documents = {0, 64, 128, 192};
  const Ranks ranks({2}, p, PlanChoice{.chunk_rows = 64, .tile_rows = 64, .cursors = {}});
  const Schedule s = ranks.at(0);
  const std::set<int64_t> keys = walked(s, KeyStepTable(s, kStepRows), 0, Rank{1});
  EXPECT_EQ(keys.size(), 128u);
  EXPECT_EQ(keys.lower_bound(64), keys.lower_bound(128)) << "nothing of the document that no row sees";
}

TEST(KeySteps, WhatNoKernelCanTakeIsRefused) {
  Problem p{.rows = {8}, .kv_rows = {100}, .batch = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 64};
  const PlanChoice choice{.chunk_rows = 64, .tile_rows = 64, .cursors = {}};
  const auto error = [&](int32_t step_rows) {
    return error_of([&] { KeyStepTable(Ranks({1}, p, choice).at(0), step_rows); });
  };
  EXPECT_EQ(error(kStepRows), "");
  EXPECT_NE(error(48).find("no whole steps"), std::string::npos);
  p.placement = Placement::given;
  p.given = {{{0, 8}}};
  p.given_kv = {{{INT32_MAX - 100, 100}}};
  EXPECT_EQ(error(kStepRows), "");
  p.given_kv = {{{INT32_MAX - 99, 100}}};
  EXPECT_NE(error(kStepRows).find("too large"), std::string::npos);
}

}  // namespace
}  // namespace tilewire::attention
