// The roles of ring attention: one iterator a role, pure integer logic for the
// host executor, the kernel and the simulator.
//
//   load     copies the own keys and values into the own buffer, from where
//   they go everywhere push     copies them to the local peers send     hands
//   them to the proxy, once for every other node, along the rail; and tells
//   senders of other nodes which
//            slots are free
//   forward  on the rail entry rank: copies chunks that came by network to the
//   local peers compute  items, each a tile of queries of one head, against the
//   keys of one source after the other release  says which slots are free, to
//   who writes into them from the own node drain    acquires every word
//   addressed to this rank
//
// The first six move and release: move_roles.h. In which order all goes, and
// where it lies: rank_schedule.h. The relay role (arrivals that the proxy
// announces) is the same for all ops: schedule/relay_role.h.
#pragma once

#include <cstdint>

#include "ops/attention/move_roles.h"
#include "ops/attention/rank_schedule.h"
#include "ops/attention/roles.h"
#include "schedule/call_roles.h"
#include "schedule/role.h"

namespace tilewire::attention {

// An item against the keys of one source. Or (`is_end`) the word that this
// worker is through with some units.
struct ItemWork : WorkBase {
  int64_t item = 0;  // a number of its own: (pair * heads + head) * tiles + tile
  int32_t pair = 0;
  int32_t head = 0;  // of those that share the pair
  int32_t tile = 0;
  Rank source;
  BlockRange blocks;
  bool is_first = false;  // its sums begin here
  bool is_last = false;   // and are the result behind it
  bool is_end = false;
  int32_t first_unit = 0;  // is_end
};

// Which items a worker has, in the order of all items: dealt out to and fro,
// through all groups. The first of a round has most to do in it, and groups
// that have fewer items than there are workers would all be the first workers'
// if each began with those.
class ItemsInTurn {
 public:
  TILEWIRE_HD constexpr ItemsInTurn(int32_t workers, int32_t worker) : workers_(workers), worker_(worker) {}

  TILEWIRE_HD constexpr int64_t first() {
    round_ = 0;
    return worker_;
  }
  TILEWIRE_HD constexpr int64_t next() {
    ++round_;
    return round_ * workers_ + (round_ % 2 == 0 ? worker_ : workers_ - 1 - worker_);
  }

 private:
  int32_t workers_, worker_;
  int64_t round_ = 0;
};

// Items go in groups of pairs, in a group those with most work first; in
// step-major order all of them once a source. Which worker takes an item is
// free where nobody keeps its sums: no other work waits for an item, but for
// the words at the end of a group, which each worker gives when its own items
// are done. So `Deal` says: numbers that rise, each item once.
template <class Deal>
class ItemRole {
 public:
  using Work = ItemWork;
  TILEWIRE_HD constexpr ItemRole(const Schedule& s, int32_t worker, const Deal& deal)
      : s_(s), worker_(worker), deal_(deal), dealt_(deal_.first()), group_end_(s_.group_end(0)) {}
  TILEWIRE_HD constexpr ItemRole(const Schedule& s, int32_t worker) : ItemRole(s, worker, Deal(s.workers, worker)) {}

  TILEWIRE_HD constexpr bool next(Work& w) { return s_.is_step_major ? next_in_step(w) : next_in_group(w); }

  TILEWIRE_HD constexpr Deal& deal() { return deal_; }

  // Two for each chunk: the record of who brings it, and that it is here. Then,
  // where all is gathered first, all chunks.
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    if (i < 2 * w.blocks.count) {
      const ChunkRef block{w.source, Chunk{w.blocks.first + i / 2}};
      if (i % 2 == 0 || !s_.is_looked_at(w.tile, block)) return s_.begun(w.source);
      return s_.arrived({w.source, Chunk{w.pair * s_.blocks_of(w.source) + block.chunk.value}});
    }
    const int32_t number = i - 2 * w.blocks.count, of_pair = s_.blocks.total_chunks();
    const ChunkRef block = s_.blocks.at(number % of_pair);
    const ChunkRef c{block.source, Chunk{number / of_pair * s_.blocks_of(block.source) + block.chunk.value}};
    return s_.wants(s_.me(), c) ? s_.arrived(c) : s_.begun(s_.me());
  }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t i) const {
    return unit_read(s_, worker_, w.first_unit + i);
  }
  // That a worker is through with a unit.
  TILEWIRE_HD static constexpr Publish unit_read(const Schedule& s, int32_t worker, int32_t unit) {
    return {s.me(), s.buffers.unit_read(int64_t{unit} * s.workers + worker)};
  }

 private:
  TILEWIRE_HD constexpr bool next_in_group(Work& w) {
    if (is_done_) dealt_ = deal_.next();
    is_done_ = false;
    while (group_ < s_.pairs) {
      const int64_t heads = int64_t{group_end_ - group_} * s_.heads;
      const int64_t at = dealt_ - int64_t{group_} * s_.heads * s_.tiles;
      if (at < heads * s_.tiles) {
        const auto pair_and_head = static_cast<int32_t>(at % heads);
        set(w, group_ + pair_and_head / s_.heads, pair_and_head % s_.heads, s_.tile_order[at / heads]);
        is_done_ = w.is_last;
        place_ = w.is_last ? 0 : place_behind(w.tile, place_);
        return true;
      }
      const int32_t first = group_, units = freed(group_, group_end_);
      group_ = group_end_;
      group_end_ = s_.group_end(group_);
      if (units > 0) return end_of(w, first, units);
    }
    return false;
  }
  TILEWIRE_HD constexpr bool next_in_step(Work& w) {
    const int64_t heads = int64_t{s_.pairs} * s_.heads;
    for (; place_ < s_.ranks(); deal_anew()) {
      const Rank source = s_.source_at(s_.me(), place_);
      for (; dealt_ < heads * s_.tiles; dealt_ = deal_.next()) {
        const int32_t tile = s_.tile_order[dealt_ / heads];
        if (place_ > 0 && s_.looked_at(tile, source).count == 0) continue;
        const auto pair_and_head = static_cast<int32_t>(dealt_ % heads);
        set(w, pair_and_head / s_.heads, pair_and_head % s_.heads, tile);
        dealt_ = deal_.next();
        return true;
      }
      if (place_ > 0 && s_.frees(place_ - 1)) {
        const int32_t unit = place_ - 1;
        deal_anew();
        return end_of(w, unit, 1);
      }
    }
    return false;
  }
  // The same items for the next source.
  TILEWIRE_HD constexpr void deal_anew() {
    ++place_;
    dealt_ = deal_.first();
  }
  // The next source behind `place` that the tile looks at; as many as ranks
  // where there is none.
  TILEWIRE_HD constexpr int32_t place_behind(int32_t tile, int32_t place) const {
    for (++place; place < s_.ranks(); ++place) {
      if (s_.looked_at(tile, s_.source_at(s_.me(), place)).count > 0) break;
    }
    return place;
  }
  // The item at the place of the walk.
  TILEWIRE_HD constexpr void set(Work& w, int32_t pair, int32_t head, int32_t tile) {
    w = Work{};
    w.pair = pair;
    w.head = head;
    w.tile = tile;
    w.item = (int64_t{pair} * s_.heads + head) * s_.tiles + tile;
    w.source = s_.source_at(s_.me(), place_);
    w.blocks = s_.looked_at(tile, w.source);
    w.is_first = place_ == 0;
    w.is_last = place_behind(tile, place_) == s_.ranks();
    w.needs = 2 * w.blocks.count;
    if (!s_.is_fused && is_first_) w.needs += s_.pairs * s_.blocks.total_chunks();
    is_first_ = false;
  }
  TILEWIRE_HD constexpr int32_t freed(int32_t begin, int32_t end) const {
    const int32_t all = s_.pairs - s_.window, last = end < all ? end : all;
    return last > begin ? last - begin : 0;
  }
  TILEWIRE_HD constexpr bool end_of(Work& w, int32_t first_unit, int32_t units) const {
    w = Work{};
    w.is_end = true;
    w.first_unit = first_unit;
    w.publishes = units;
    return true;
  }

  Kept<Schedule> s_;
  int32_t worker_;
  Deal deal_;
  int64_t dealt_;  // in the order of all items, or of those of a source
  int32_t group_ = 0;
  int32_t group_end_;
  int32_t place_ = 0;
  bool is_first_ = true;
  bool is_done_ = false;  // with the item that was dealt
};
using ComputeRole = ItemRole<ItemsInTurn>;

// The agents of a rank beside those of every call: visit(place, iterator) for
// each role of the list in roles.h and each of its workers. The host executor,
// the kernel's tests and the simulator take stages and cursors from here.
//
// Under a window a role that waits for a free slot holds up what is behind it,
// so none waits ahead there.
template <class Visit>
TILEWIRE_HD constexpr void for_each_role(const Schedule& s, Cursors cursors, Visit&& visit) {
  const bool has_window = s.window < s.units();
  const int32_t ahead = has_window ? 0 : INT32_MAX;
  visit(Roles::place("load").with(cursors), LoadRole(s));
  if (s.local_peers() > 0) visit(Roles::place("push").with(cursors, ahead), PushRole(s));
  if (s.frame.has_network()) {
    visit(Roles::place("send").with(cursors, ahead), SendRole(s));
    if (s.local_peers() > 0) visit(Roles::place("forward").with(cursors, ahead), ForwardRole(s));
  }
  for (int32_t worker = 0; worker < s.workers; ++worker) {
    visit(Roles::place("compute").at(worker).with(cursors, ahead), ComputeRole(s, worker));
  }
  if (has_window) visit(Roles::place("release"), ReleaseRole(s));
  visit(Roles::place("drain").in_stage(kDrainStage), DrainRole(s));
}

}  // namespace tilewire::attention
