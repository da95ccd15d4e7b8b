// The roles of MoE dispatch that use the rows of a round and free its slot.
//
//   compute  multiplies rows of own experts by their weights, as they come: by rounds, phases and experts
//   release  says that all workers have read a round
//   drain    acquires every word addressed to this rank, so that nothing of this call is in flight when it says done
#pragma once

#include <cstdint>

#include "ops/moe_dispatch/rank_schedule.h"
#include "schedule/tile_grid.h"

namespace tilewire::moe_dispatch {

// An output tile; or (columns.is_gather_copy) the origins of its rows; or the end of a round.
struct TileWork : WorkBase {
  bool is_gate = false;
  bool is_round_end = false;
  int32_t round = 0;
  int64_t tile = 0;    // of the call, in order of the walk
  int32_t expert = 0;  // among the own ones
  RowRange rows;       // among those of the round
  ColumnMap::Block columns;
  int32_t first = 0;  // positions of the sources that have rows in it
  int32_t last = 0;
  bool awaits_round = false;  // all rows of the round are waited for
};

// Tiles are dealt out among the workers in turn. Each says of each round whose slot is used again when it has done its
// last tile of it.
class ComputeRole {
 public:
  using Work = TileWork;
  TILEWIRE_HD constexpr ComputeRole(const Schedule& s, int32_t worker) : s_(s), worker_(worker), tile_(worker) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    if (gate_.next(w)) return true;
    while (round_ < s_.rounds()) {
      w = Work{};
      w.round = round_;
      if (tile_ < s_.routing->group_tile[int64_t{round_ + 1} * s_.routing->groups]) {
        set_tile(w);
        tile_ += s_.workers;
        is_first_of_round_ = false;
        return true;
      }
      ++round_;
      is_first_of_round_ = true;
      if (!s_.frees(w.round)) continue;
      w.is_round_end = true;
      w.publishes = 1;
      return true;
    }
    return false;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    if (w.is_gate) return {s_.routed(), 0};
    if (!w.awaits_round) return arrival(w.round, s_.piece_of(w.expert), w.first + i / 2, i % 2);
    return arrival(w.round, i / 2 / s_.ranks(), i / 2 % s_.ranks(), i % 2);
  }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t) const {
    return {s_.me(), s_.computed(worker_, w.round)};
  }

 private:
  // A source without rows has no word: the own record's stands in for it.
  TILEWIRE_HD constexpr Need arrival(int32_t round, int32_t piece, int32_t position, int32_t which) const {
    if (!s_.has_rows(round, s_.topology().local(s_.me()).value, piece, position)) return s_.begun(s_.me());
    const Rank source = s_.source_at[position];
    return which == 0 ? s_.begun(source) : Need{s_.arrived(source, round, piece), 0};
  }
  TILEWIRE_HD constexpr void set_tile(Work& w) {
    if (tile_ >= group_end_tile_) enter_group();
    const int32_t in_round = group_ % s_.routing->groups;
    const TileGrid grid{.rows = rows_end_ - rows_begin_,
                        .tile_rows = s_.tile_rows,
                        .row_blocks = static_cast<int32_t>(div_up(rows_end_ - rows_begin_, s_.tile_rows)),
                        .col_blocks = s_.columns.blocks(),
                        .raster_rows = s_.raster_rows};
    const TileGrid::Position at = grid.position(tile_ - group_tile_);
    const RowRange rows = grid.block_rows(at.row_step);
    w.tile = tile_;
    w.expert = in_round % s_.own_experts();
    w.rows = {rows_begin_ + rows.begin, rows_begin_ + rows.end};
    w.columns = s_.columns.block(at.col_block);
    set_sources(w, in_round / s_.own_experts());
    w.awaits_round = !s_.is_fused && is_first_of_round_;
    w.needs = w.awaits_round ? 2 * s_.pieces * s_.ranks() : 2 * (w.last - w.first + 1);
  }
  // The group that tile_ is of, mostly the next one: a kernel's threads all come by here, and each look at a table takes
  // them as long as hundreds of instructions.
  TILEWIRE_HD constexpr void enter_group() {
    const Routing& routing = *s_.routing;
    const auto all = static_cast<int32_t>(int64_t{s_.rounds()} * routing.groups);
    group_ = group_ + 1 < all && tile_ < routing.group_tile[group_ + 2] && tile_ >= routing.group_tile[group_ + 1]
                 ? group_ + 1
                 : range_of(routing.group_tile, all, tile_);
    group_tile_ = routing.group_tile[group_];
    group_end_tile_ = routing.group_tile[group_ + 1];
    const int32_t* begins = routing.group_begin + int64_t{round_} * (routing.groups + 1) + group_ % routing.groups;
    rows_begin_ = begins[0];
    rows_end_ = begins[1];
  }
  // The sources of a phase have their rows one behind the other.
  TILEWIRE_HD constexpr void set_sources(Work& w, int32_t phase) const {
    const RowRange positions = s_.positions_of(phase);
    w.first = static_cast<int32_t>(positions.begin);
    const int32_t place = s_.first_own_place() + w.expert;
    for (auto p = static_cast<int32_t>(positions.begin); p < positions.end; ++p) {
      const Cell& cell = s_.cell(w.round, place, p);
      if (cell.begin + cell.rows <= w.rows.begin) w.first = p + 1;
      if (cell.begin < w.rows.end && cell.rows > 0) w.last = p;
    }
  }

  Kept<Schedule> s_;
  Gate gate_;
  int32_t worker_;
  int64_t tile_;
  int32_t round_ = 0;
  bool is_first_of_round_ = true;
  // The group of rows that tile_ is of.
  int32_t group_ = -1;
  int32_t rows_begin_ = 0, rows_end_ = 0;  // of the round
  int64_t group_tile_ = 0, group_end_tile_ = 0;
};

struct ReleaseWork : WorkBase {
  bool is_gate = false;
  int32_t round = 0;
};

class ReleaseRole {
 public:
  using Work = ReleaseWork;
  TILEWIRE_HD explicit constexpr ReleaseRole(const Schedule& s) : s_(s) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    if (gate_.next(w)) return true;
    if (!s_.frees(round_)) return false;
    w = Work{};
    w.round = round_++;
    w.needs = s_.workers;
    w.publishes = s_.width();
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    return {w.is_gate ? s_.routed() : s_.computed(i, w.round), 0};
  }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t i) const {
    return {s_.local(i), s_.taken(s_.me(), w.round)};
  }

 private:
  Kept<Schedule> s_;
  Gate gate_;
  int32_t round_ = 0;
};

// A round; and last the end of the call, when whoever runs it may finish what no row is for.
struct DrainWork : WorkBase {
  bool is_end = false;
  int32_t round = 0;
};

class DrainRole {
 public:
  using Work = DrainWork;
  TILEWIRE_HD explicit constexpr DrainRole(const Schedule& s) : s_(s) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    if (is_ended_) return false;
    w = Work{};
    w.is_end = is_ended_ = round_ == s_.rounds();
    w.round = round_++;
    if (!w.is_end) w.needs = s_.pieces * s_.ranks() + s_.width() + s_.topology().nodes - 1;
    return true;
  }
  // Where there is no such word, the own record's stands in for it.
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    const Need none = s_.begun(s_.me());
    if (i < s_.pieces * s_.ranks()) {
      const int32_t piece = i / s_.ranks(), position = i % s_.ranks();
      const bool has_rows = s_.has_rows(w.round, s_.topology().local(s_.me()).value, piece, position);
      return has_rows ? Need{s_.arrived(s_.source_at[position], w.round, piece), 0} : none;
    }
    i -= s_.pieces * s_.ranks();
    if (i < s_.width()) return s_.frees(w.round) ? Need{s_.taken(s_.local(i), w.round), 0} : none;
    const Node n = s_.topology().other_node(s_.node(), i - s_.width());
    const bool is_freed = s_.frees(s_.me(), w.round) && s_.tokens_to(n, w.round) > 0;
    return is_freed ? Need{s_.unstaged(s_.topology().rail_partner(s_.me(), n), w.round), 0} : none;
  }
  TILEWIRE_HD constexpr Publish publish(const Work&, int32_t) const { return {}; }

 private:
  Kept<Schedule> s_;
  int32_t round_ = 0;
  bool is_ended_ = false;
};

}  // namespace tilewire::moe_dispatch
