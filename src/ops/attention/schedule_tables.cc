#include "ops/attention/schedule_tables.h"

#include <algorithm>
#include <numeric>

#include "base/bytes.h"
#include "operands/weighted_matmul.h"
#include "ops/attention/cost.h"
#include "ops/attention/plan.h"

namespace tilewire::attention {
namespace {

int64_t slot_rows(const Problem& p, const PlanChoice& choice) {
  if (choice.is_step_major) {
    return checked_mul(*std::max_element(p.kv_rows.begin(), p.kv_rows.end()), p.pairs());
  }
  return p.total_kv_rows() - *std::min_element(p.kv_rows.begin(), p.kv_rows.end());
}

// The blocks of a source, where each begins and ends among the positions of all its rows.
std::vector<PositionRun> cut_to(const Positions& positions, RowRange rows) {
  std::vector<PositionRun> cut;
  int64_t begin = 0;
  for (const PositionRun& run : positions) {
    const int64_t first = std::max(rows.begin, begin), last = std::min(rows.end, begin + run.count);
    if (first < last) cut.push_back({run.begin + first - begin, last - first});
    begin += run.count;
  }
  return cut;
}

}  // namespace

CallLayout layout_of(const Problem& p, const PlanChoice& choice, const PlanContext& x) {
  CallLayout layout;
  const int64_t most_own = checked_mul(*std::max_element(p.kv_rows.begin(), p.kv_rows.end()), p.pairs());
  layout.units = choice.is_step_major ? x.topology.ranks - 1 : narrow<int32_t>(p.pairs());
  layout.slots = choice.window == 0 ? layout.units : std::min<int64_t>(choice.window, layout.units);
  layout.slot_bytes = checked_mul(slot_rows(p, choice), p.kv_row_bytes());
  layout.received_begin = checked_add(x.arena.data_offset(), checked_mul(most_own, p.kv_row_bytes()));
  layout.end = checked_add(layout.received_begin, checked_mul(layout.slots, layout.slot_bytes));
  return layout;
}

ScheduleTables::ScheduleTables(const Problem& problem, const PlanChoice& choice, const PlanContext& context)
    : blocks_(problem.kv_rows, choice.chunk_rows, problem.pairs() > 0) {
  const CallLayout layout = layout_of(problem, choice, context);
  Schedule& s = schedule_;
  s.frame = {.topology = context.topology, .arena = context.arena, .me = context.me};
  s.blocks = blocks_.view();
  s.buffers = {.arena = context.arena,
               .row_bytes = problem.kv_row_bytes(),
               .received_begin = layout.received_begin,
               .slot_bytes = layout.slot_bytes};
  s.pairs = static_cast<int32_t>(problem.pairs());
  s.is_step_major = choice.is_step_major;
  s.window = static_cast<int32_t>(std::max<int64_t>(1, layout.slots));
  s.rows = problem.rows[static_cast<size_t>(context.me.value)];
  s.tile_rows = choice.tile_rows;
  s.tiles = narrow<int32_t>(div_up(s.rows, choice.tile_rows));
  s.heads = static_cast<int32_t>(problem.heads_of_pair());
  s.group_pairs = static_cast<int32_t>(std::min<int64_t>(choice.group_pairs, s.window));
  s.workers = choice.workers;
  s.is_fused = choice.is_fused;
  set_keys(problem);
  set_queries(problem, choice.tile_rows);
  set_wanted(problem);
  set_tiles();
}

void ScheduleTables::set_keys(const Problem& problem) {
  const std::vector<Positions> positions = problem.kv_positions();
  for (const Positions& of_rank : positions) {
    const std::vector<int64_t> all = expanded(of_rank);
    key_positions_.insert(key_positions_.end(), all.begin(), all.end());
  }
  const ChunkMap blocks = blocks_.view();
  for (int32_t g = 0; g < blocks.total_chunks(); ++g) {
    const RowRange rows = blocks.rows(blocks.at(g));
    KeyBounds& bounds = block_keys_.emplace_back();
    for (int64_t row = rows.begin; row < rows.end; ++row) bounds.add(key_positions_[static_cast<size_t>(row)]);
  }
}

void ScheduleTables::set_queries(const Problem& problem, int32_t tile_rows) {
  const MaskRule mask = problem.mask();
  const Positions own = problem.positions()[static_cast<size_t>(schedule_.me().value)];
  tile_spans_.resize(static_cast<size_t>(schedule_.tiles));
  for (const int64_t position : expanded(own)) {
    const auto row = static_cast<int64_t>(query_spans_.size());
    query_spans_.push_back(mask.span_of(position));
    tile_spans_[static_cast<size_t>(row / tile_rows)].add(query_spans_.back());
  }
}

void ScheduleTables::set_wanted(const Problem& problem) {
  const ChunkMap blocks = blocks_.view();
  const MaskRule mask = problem.mask();
  const std::vector<Positions> queries = problem.positions(), keys = problem.kv_positions();
  for (int32_t r = 0; r < schedule_.ranks(); ++r) {
    const bool has_heads = problem.q_heads > 0;
    const std::vector<KeySpan> seen = mask.seen_by(queries[static_cast<size_t>(r)]);
    for (int32_t g = 0; g < blocks.total_chunks(); ++g) {
      const ChunkRef c = blocks.at(g);
      const RowRange rows = blocks.rows(c);
      const int64_t first = blocks.row_begin[c.source.value];
      const auto cut = cut_to(keys[static_cast<size_t>(c.source.value)], {rows.begin - first, rows.end - first});
      wanted_.push_back(has_heads &&
                        std::any_of(cut.begin(), cut.end(), [&](PositionRun run) { return is_seen(seen, run); }));
    }
  }
}

void ScheduleTables::set_tiles() {
  const ChunkMap blocks = blocks_.view();
  const Schedule s = schedule(0);
  std::vector<double> work;
  for (int32_t tile = 0; tile < s.tiles; ++tile) {
    work.push_back(0);
    for (int32_t r = 0; r < s.ranks(); ++r) {
      BlockRange& range = tile_blocks_.emplace_back();
      for (int32_t block = 0; block < s.blocks_of(Rank{r}); ++block) {
        const ChunkRef c{Rank{r}, Chunk{block}};
        if (!s.is_looked_at(tile, c)) continue;
        if (range.count == 0) range.first = block;
        range.count = block + 1 - range.first;
        work.back() += scores_of(s, tile, blocks.global(c));
      }
    }
  }
  tile_order_.resize(static_cast<size_t>(s.tiles));
  std::iota(tile_order_.begin(), tile_order_.end(), 0);
  std::stable_sort(tile_order_.begin(), tile_order_.end(),
                   [&](int32_t a, int32_t b) { return work[static_cast<size_t>(a)] > work[static_cast<size_t>(b)]; });
}

Schedule ScheduleTables::schedule(Epoch epoch) const {
  Schedule s = schedule_;
  s.frame.epoch = epoch;
  s.blocks = blocks_.view();
  s.wanted = wanted_.data();
  s.tile_spans = tile_spans_.data();
  s.block_keys = block_keys_.data();
  s.tile_blocks = tile_blocks_.data();
  s.tile_order = tile_order_.data();
  s.query_spans = query_spans_.data();
  s.key_positions = key_positions_.data();
  return s;
}

}  // namespace tilewire::attention
