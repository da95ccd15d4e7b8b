#include "schedule/reduction_tables.h"

#include <algorithm>
#include <limits>

#include "base/bytes.h"

namespace tilewire {
namespace {

// The roles on the way of a chunk, which have the window together: what one waits ahead the others cannot.
constexpr int32_t kRolesOnTheWay = 4;

// The owners of which local rank `local` of node `here` is the rail partner, in the order in which their chunks go in a
// round: the farthest node first, the own one last.
std::vector<Rank> owners_on_rail(const Topology& t, Node here, int32_t local) {
  std::vector<Rank> owners;
  const int32_t width = t.ranks_on(here);
  for (int32_t i = t.nodes - 1; i >= 0; --i) {
    const Node n = i == 0 ? here : t.other_node(here, i - 1);
    for (int32_t l = local; l < t.ranks_on(n); l += width) owners.push_back(t.rank_at(n, LocalRank{l}));
  }
  return owners;
}

// The owners in the order in which a rank computes a round for them: by nodes as above; on each node it begins with the
// rail behind its own, so that no rail partner gets chunks from all ranks of the node at once. On each rail the order is
// that of owners_on_rail().
std::vector<Rank> owners_in_round(const Topology& t, Rank me) {
  std::vector<Rank> owners;
  const Node here = t.node(me);
  const int32_t width = t.ranks_on(here);
  for (int32_t i = t.nodes - 1; i >= 0; --i) {
    const Node n = i == 0 ? here : t.other_node(here, i - 1);
    for (int32_t peer = 1; peer <= width; ++peer) {
      for (int32_t l = (t.local(me).value + peer) % width; l < t.ranks_on(n); l += width) {
        owners.push_back(t.rank_at(n, LocalRank{l}));
      }
    }
  }
  return owners;
}

// Chunk j of each owner, then chunk j + 1; those of owner o `behind(o)` rounds later. And how many chunks the shortest
// round has.
template <class Behind>
int32_t fill_rounds(const ReductionMap& map, const std::vector<Rank>& owners, const Behind& behind,
                    std::vector<int32_t>& order) {
  int64_t rounds = 0;
  for (const Rank owner : owners) {
    if (map.chunks_of(owner) > 0) rounds = std::max(rounds, behind(owner) + map.chunks_of(owner));
  }
  int32_t fewest = std::numeric_limits<int32_t>::max();
  for (int64_t round = 0; round < rounds; ++round) {
    const size_t before = order.size();
    for (const Rank owner : owners) {
      const int64_t chunk = round - behind(owner);
      if (chunk < 0 || chunk >= map.chunks_of(owner)) continue;
      order.push_back(map.global({owner, Chunk{static_cast<int32_t>(chunk)}}));
    }
    if (order.size() > before) fewest = std::min(fewest, static_cast<int32_t>(order.size() - before));
  }
  return order.empty() ? 1 : fewest;
}

}  // namespace

int64_t ReductionCut::col_blocks() const { return div_up(cols, chunk_cols); }
int64_t ReductionCut::dealt_row_blocks() const { return deals_chunks ? div_up(rows.front(), chunk_rows) : 0; }

int64_t ReductionCut::chunks() const {
  int64_t row_blocks = 0;
  for (const int64_t of_owner : rows) row_blocks = checked_add(row_blocks, div_up(of_owner, chunk_rows));
  return checked_mul(row_blocks, col_blocks());
}

ReductionNeeds reduction_needs(const Topology& t, const ReductionCut& cut) {
  const std::vector<int64_t> dealt = dealt_evenly(cut.deals_chunks ? cut.chunks() : 0, t.ranks);
  const auto chunks_of = [&](Rank owner) {
    const auto o = static_cast<size_t>(owner.value);
    return cut.deals_chunks ? dealt[o] : checked_mul(div_up(cut.rows[o], cut.chunk_rows), cut.col_blocks());
  };
  const auto slots_of = [&](Rank owner) {
    return cut.window > 0 ? std::min(cut.window, chunks_of(owner)) : chunks_of(owner);
  };
  ReductionNeeds most;
  for (int32_t r = 0; r < t.ranks; ++r) {
    const Node here = t.node(Rank{r});
    int64_t slots = 0, chunks = 0;
    for (const Rank owner : owners_on_rail(t, here, t.local(Rank{r}).value)) {
      slots = checked_add(slots, slots_of(owner));
      chunks = checked_add(chunks, chunks_of(owner));
    }
    most.partial_slots = std::max(most.partial_slots, checked_mul(slots, t.ranks_on(here)));
    most.sent_slots = std::max(most.sent_slots, chunks - chunks_of(Rank{r}));
    most.received_slots = std::max(most.received_slots, checked_mul(slots_of(Rank{r}), t.nodes - 1));
    most.rail_chunks = std::max(most.rail_chunks, chunks);
  }
  return most;
}

ChunkTables ReductionTables::blocks_of(const Topology& t, const ReductionCut& cut) {
  if (!cut.deals_chunks) return {cut.rows, cut.chunk_rows, cut.cols > 0};
  return {dealt_evenly(cut.dealt_row_blocks() * cut.col_blocks(), t.ranks), 1};
}

ReductionTables::ReductionTables(const Topology& t, Rank me, const ReductionCut& cut)
    : blocks_(blocks_of(t, cut)), rail_chunk_(static_cast<size_t>(t.ranks)), rail_slot_(static_cast<size_t>(t.ranks)) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  map_.blocks = blocks_.view();
  map_.cols = cut.cols;
  map_.chunk_cols = cut.chunk_cols;
  map_.band_blocks = static_cast<int32_t>(std::min(cut.band_blocks, std::max<int64_t>(1, cut.col_blocks())));
  map_.col_blocks = cut.deals_chunks ? 1 : static_cast<int32_t>(cut.col_blocks());
  map_.dealt_row_blocks = static_cast<int32_t>(cut.dealt_row_blocks());
  map_.dealt_chunk_rows = cut.chunk_rows;
  map_.dealt_rows = cut.rows.empty() ? 0 : cut.rows.front();
  map_.window = static_cast<int32_t>(cut.window > 0 ? std::min(cut.window, kMost) : kMost);
  const Node here = t.node(me);
  for (int32_t l = 0; l < t.ranks_on(here); ++l) {
    int32_t chunks = 0, slots = 0;
    for (const Rank owner : owners_on_rail(t, here, l)) {
      rail_chunk_[static_cast<size_t>(owner.value)] = chunks;
      rail_slot_[static_cast<size_t>(owner.value)] = slots;
      chunks += map_.chunks_of(owner);
      slots += map_.slots_of(owner);
    }
    source_slots_.push_back(slots);
  }
  std::vector<Rank> rail = owners_on_rail(t, here, t.local(me).value);
  rail.pop_back();  // this rank itself, whose chunks are sent nowhere
  // No more than there are rounds, which is all that more could mean.
  const int64_t own_behind = std::min<int64_t>(cut.own_behind, map_.total_chunks());
  const auto behind = [&](Rank owner) { return t.same_node(me, owner) ? own_behind : 0; };
  map_.fewest_in_round = fill_rounds(map_, owners_in_round(t, me), behind, order_);
  map_.fewest_on_rail = fill_rounds(
      map_, rail, [](Rank) { return int64_t{0}; }, rail_order_);
  map_.rail_chunks = static_cast<int32_t>(rail_order_.size());
  map_.ahead_rounds = (map_.window - 1) / kRolesOnTheWay;
}

ReductionMap ReductionTables::view() const {
  ReductionMap map = map_;
  map.blocks = blocks_.view();
  map.rail_chunk = rail_chunk_.data();
  map.rail_slot = rail_slot_.data();
  map.source_slots = source_slots_.data();
  map.order = order_.data();
  map.rail_order = rail_order_.data();
  return map;
}

}  // namespace tilewire
