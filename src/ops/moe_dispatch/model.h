// MoE dispatch for the simulator: which memory each role's work reads and writes, and what a tile costs. The iterators
// are those of schedule.h; nothing is computed here that they do not say. Where tokens go is what sample_routing.h says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/moe_dispatch/plan.h"
#include "ops/moe_dispatch/sample_routing.h"
#include "ops/moe_dispatch/schedule.h"
#include "schedule/machine.h"
#include "schedule/simulator/op_model.h"

namespace tilewire::moe_dispatch {

struct RankModel {
  using Problem = moe_dispatch::Problem;
  using Choice = PlanChoice;
  using Tables = SampledTables;
  using Schedule = moe_dispatch::Schedule;
  static constexpr const char* const* kFamilyNames = moe_dispatch::kFamilyNames;

  Schedule schedule;
  Cursors cursors;
  int64_t h = 0;
  int64_t row_bytes = 0;

  RankModel(const Schedule& s, const PlanChoice& choice, const Problem& problem)
      : schedule(s), cursors(choice.cursors), h(problem.h), row_bytes(problem.h * size_bytes(problem.dtype)) {}

  // ---- counts
  void touch(const CountWork& w, Touch& touch) const {
    if (w.to != schedule.me()) return touch.copy(own_record(), record(w.to, schedule.me()), counts(schedule.me()));
    touch.write(own_record(), counts(schedule.me()));
    touch.charge(schedule.tokens * schedule.top_k * int64_t{sizeof(int32_t)});
  }
  void touch(const RouteWork&, Touch& touch) const {
    for (int32_t r = 0; r < schedule.ranks(); ++r) touch.read(record(schedule.me(), Rank{r}), counts(Rank{r}));
    touch.write(tables(), {kRouted, schedule.me(), 0, 0});
  }

  // ---- rows. A gate stands for the look at the tables that comes behind it.
  void touch(const PushWork& w, Touch& touch) const {
    if (w.is_gate) return touch_tables(touch);
    const RowRange places = schedule.piece_places(w.to, w.piece);
    for (int64_t place = places.begin; place < places.end; ++place) {
      touch_rows(schedule.me(), w.to, w.round, static_cast<int32_t>(place), {0, 1, 1}, touch);
    }
  }
  void touch(const PackWork& w, Touch& touch) const {
    if (w.is_gate) return touch_tables(touch);
    touch.write(outbox(w.chunk, w.tokens), tokens(schedule.me(), w.chunk.to, w.chunk.round, w.chunk.number));
  }
  void touch(const SendWork& w, Touch& touch) const {
    if (w.is_gate) return touch_tables(touch);
    if (w.kind == SendWork::Kind::record) touch.need(own_record(), counts(schedule.me()));
    if (w.kind != SendWork::Kind::tokens) return;
    touch.need(outbox(w.chunk, w.tokens), tokens(schedule.me(), w.chunk.to, w.chunk.round, w.chunk.number));
  }
  void touch(const ForwardWork& w, Touch& touch) const {
    if (w.is_gate) return touch_tables(touch);
    const Rank me = schedule.me();
    if (w.is_record) return touch.copy(record(me, w.source), record(w.to, w.source), counts(w.source));
    const int64_t offset = schedule.buffers.staging_offset(schedule.entry(w.source, me), w.round, w.tokens.begin);
    touch.need({me, SimArea::half, offset, w.tokens.rows() * schedule.buffers.token_pitch},
               tokens(w.source, schedule.node(), w.round, w.number));
    // Which rows are of which chunk depends on the tokens: here each chunk brings its share of every expert's.
    const int32_t chunks = schedule.chunks(schedule.tokens_from(w.source, w.round));
    for (int32_t place = 0; place < schedule.routing->places; ++place) {
      const Rank to = schedule.experts.rank_of[schedule.experts.first_on(schedule.topology(), schedule.node()) + place];
      touch_rows(w.source, to, w.round, place, {w.number, w.number + 1, chunks}, touch);
    }
  }
  void touch(const TileWork& w, Touch& touch) const {
    if (w.is_gate) return touch_tables(touch);
    if (w.is_round_end) return;
    touch.tile(w.tile,
               w.columns.is_gather_copy ? 0 : gemm_tile_flops(w.rows.rows(), w.columns.end - w.columns.begin, h));
    if (w.columns.is_gather_copy) touch.charge(w.rows.rows() * int64_t{sizeof(RowOrigin)});
    const int32_t place = schedule.first_own_place() + w.expert;
    for (int32_t p = w.first; p <= w.last; ++p) {
      const Cell& cell = schedule.cell(w.round, place, p);
      const int64_t begin = std::max<int64_t>(w.rows.begin, cell.begin);
      const int64_t end = std::min<int64_t>(w.rows.end, cell.begin + cell.rows);
      if (begin >= end) continue;
      touch.need(rows(schedule.me(), w.round, begin, end - begin),
                 content(schedule.source_at[p], w.round, place, begin - cell.begin));  // loading is in the flops
    }
  }
  void touch(const ReleaseWork& w, Touch& touch) const {
    if (w.is_gate) touch_tables(touch);
  }
  void touch(const DrainWork&, Touch&) const {}

  int64_t tiles() const {
    if (schedule.rounds() == 0) return 0;
    return schedule.routing->group_tile[int64_t{schedule.rounds()} * schedule.routing->groups];
  }
  std::vector<UserInput> user_inputs() const { return {}; }

 private:
  struct Share {
    int64_t begin, end, of;
  };

  void touch_tables(Touch& touch) const { touch.need(tables(), {kRouted, schedule.me(), 0, 0}); }
  // A share of a source's rows of a round for the expert at a place of this node.
  void touch_rows(Rank source, Rank to, int32_t round, int32_t place, Share share, Touch& touch) const {
    const Cell& cell = schedule.cell(round, place, schedule.position_of[source.value]);
    const int64_t begin = cell.rows * share.begin / share.of, end = cell.rows * share.end / share.of;
    if (begin == end) return;
    touch.write(rows(to, round, cell.begin + begin, end - begin), content(source, round, place, begin));
    touch.charge((end - begin) * row_bytes);
  }
  MemoryRange record(Rank at, Rank of) const {
    const int32_t rounds = schedule.rounds_of_tokens(schedule.routing->tokens_of[of.value]);
    return {at, SimArea::half, schedule.buffers.record_offset(of), schedule.record_bytes(rounds)};
  }
  MemoryRange own_record() const { return record(schedule.me(), schedule.me()); }
  MemoryRange tables() const {
    return {schedule.me(), SimArea::half, schedule.buffers.tables_offset(), schedule.buffers.tables_bytes};
  }
  MemoryRange outbox(const NodeChunk& c, const RowRange& tokens) const {
    return {schedule.me(), SimArea::half, schedule.outbox_offset(c.to, c.round, tokens.begin),
            tokens.rows() * schedule.buffers.token_pitch};
  }
  MemoryRange rows(Rank at, int32_t round, int64_t row, int64_t count) const {
    return {at, SimArea::half, schedule.buffers.rows_offset(round, row), count * schedule.buffers.row_pitch};
  }
  static Content counts(Rank of) { return {kCounted, of, 0, 0}; }
  Content tokens(Rank of, Node to, int32_t round, int32_t number) const {
    return {kStaged, of, (round * schedule.most_chunks() + number) * schedule.topology().nodes + to.value, 0};
  }
  Content content(Rank source, int32_t round, int32_t place, int64_t first_row) const {
    return {kArrived, source, round * schedule.routing->places + place, first_row * schedule.buffers.row_pitch};
  }
};

}  // namespace tilewire::moe_dispatch
