// Ring attention as one rank sees it: which keys there are, who needs which of them, in which order they come and where
// they lie. For the roles of schedule.h.
//
// A **pair** is a batch entry and a head of k and v; pairs are numbered batch entry by batch entry. The keys and values of
// a pair are cut at each source into blocks of rows. A chunk is a block of a pair: number pair * blocks + block among its
// source's.
//
// There are two orders.
//   head-major   all ranks' keys of pair 0, then of pair 1, ... A slot holds one pair. Compute takes pairs in groups.
//   step-major   all pairs of one source, then of the next one. A slot holds one source. Compute comes to each item once
//                a source, and keeps its sums in between.
// What has a slot is a **unit**: a pair, or a source by its place in the rank's order of sources, the own one left out.
#pragma once

#include <cstdint>

#include "ops/attention/flags.h"
#include "ops/attention/mask.h"
#include "schedule/call_roles.h"
#include "schedule/chunk_map.h"
#include "schedule/role.h"

namespace tilewire::attention {

// The blocks of a source that a tile of queries looks at: from `first` on, `count` of them; some between may be masked.
struct BlockRange {
  int32_t first = 0;
  int32_t count = 0;
};

// All that the roles of one rank look at. The tables behind it belong to the plan.
struct Schedule {
  CallFrame frame;
  ChunkMap blocks;  // rows of keys by source, cut into blocks
  Buffers buffers;
  int32_t pairs = 0;
  bool is_step_major = false;
  int32_t window = 1;  // slots; as many as units or more: none is used twice

  const uint8_t* wanted = nullptr;          // [ranks, blocks of all sources] whether the rank looks at the block
  const SpanBounds* tile_spans = nullptr;   // [tiles] of the own queries
  const KeyBounds* block_keys = nullptr;    // [blocks of all sources]
  const BlockRange* tile_blocks = nullptr;  // [tiles, ranks]
  const int32_t* tile_order = nullptr;      // [tiles] most work first
  const KeySpan* query_spans = nullptr;     // [rows] what each own query sees
  const int64_t* key_positions = nullptr;   // [rows of keys of all sources]

  // This rank's own:
  int64_t rows = 0;  // queries of a batch entry
  int64_t tile_rows = 1;
  int32_t tiles = 0;        // of a head
  int32_t heads = 1;        // of q that share a pair
  int32_t group_pairs = 1;  // pairs that compute takes together, at most
  int32_t workers = 1;
  bool is_fused = true;  // false: the first item waits for the whole gather

  TILEWIRE_HD constexpr const Topology& topology() const { return frame.topology; }
  TILEWIRE_HD constexpr Rank me() const { return frame.me; }
  TILEWIRE_HD constexpr Node here() const { return topology().node(frame.me); }
  TILEWIRE_HD constexpr int32_t ranks() const { return topology().ranks; }
  TILEWIRE_HD constexpr int32_t local_peers() const { return topology().ranks_on(here()) - 1; }
  TILEWIRE_HD constexpr int32_t other_nodes() const { return topology().nodes - 1; }

  // ---- chunks
  TILEWIRE_HD constexpr int32_t blocks_of(Rank s) const { return blocks.chunks_of(s); }
  TILEWIRE_HD constexpr int32_t chunks_of(Rank s) const { return pairs * blocks_of(s); }
  TILEWIRE_HD constexpr int32_t pair_of(ChunkRef c) const { return c.chunk.value / blocks_of(c.source); }
  TILEWIRE_HD constexpr ChunkRef block_of(ChunkRef c) const {
    return {c.source, Chunk{c.chunk.value % blocks_of(c.source)}};
  }
  TILEWIRE_HD constexpr RowRange rows_of(ChunkRef c) const {  // among those of the source
    const RowRange all = blocks.rows(block_of(c));
    const int64_t first = blocks.row_begin[c.source.value];
    return {all.begin - first, all.end - first};
  }
  TILEWIRE_HD constexpr int64_t bytes(ChunkRef c) const { return rows_of(c).rows() * buffers.row_bytes; }

  // ---- who needs what
  TILEWIRE_HD constexpr bool wants(Rank r, ChunkRef c) const {
    return wanted[int64_t{r.value} * blocks.total_chunks() + blocks.global(block_of(c))] != 0;
  }
  TILEWIRE_HD constexpr bool node_wants(Node n, ChunkRef c) const {
    for (int32_t l = 0; l < topology().ranks_on(n); ++l) {
      if (wants(topology().rank_at(n, LocalRank{l}), c)) return true;
    }
    return false;
  }
  // Whether a source's data enters this node here.
  TILEWIRE_HD constexpr bool enters_here(Rank s) const {
    return frame.is_remote(s) && topology().rail_partner(s, here()) == me();
  }
  // Whether the chunk comes to lie in this rank's buffers: the own one where anybody wants it.
  TILEWIRE_HD constexpr bool comes(ChunkRef c) const {
    if (wants(me(), c)) return true;
    if (c.source != me()) return enters_here(c.source) && node_wants(here(), c);
    for (int32_t n = 0; n < topology().nodes; ++n) {
      if (node_wants(Node{n}, c)) return true;
    }
    return false;
  }

  // ---- the order of sources: the own rank; the others of the node, from the next one on; then node after node, from the
  // next one on, each in the same order at all ranks of a node
  TILEWIRE_HD constexpr int32_t place_of(Rank at, Rank s) const {
    const Topology& t = topology();
    const Node n = t.node(at), of = t.node(s);
    const int32_t width = t.ranks_on(n);
    if (n == of) return (t.local(s).value - t.local(at).value + width) % width;
    int32_t place = width;
    for (int32_t i = 0; t.other_node(n, i) != of; ++i) place += t.ranks_on(t.other_node(n, i));
    return place + t.local(s).value;
  }
  TILEWIRE_HD constexpr Rank source_at(Rank at, int32_t place) const {
    const Topology& t = topology();
    const Node n = t.node(at);
    const int32_t width = t.ranks_on(n);
    if (place < width) return t.rank_at(n, LocalRank{(t.local(at).value + place) % width});
    place -= width;
    for (int32_t i = 0;; ++i) {
      const Node other = t.other_node(n, i);
      if (place < t.ranks_on(other)) return t.rank_at(other, LocalRank{place});
      place -= t.ranks_on(other);
    }
  }

  // ---- units and slots
  TILEWIRE_HD constexpr int32_t units() const { return is_step_major ? ranks() - 1 : pairs; }
  TILEWIRE_HD constexpr int32_t unit_of(Rank at, ChunkRef c) const {
    return is_step_major ? place_of(at, c.source) - 1 : pair_of(c);
  }
  // Whether a slot is used again once its unit is done with, and whether it was used before.
  TILEWIRE_HD constexpr bool frees(int32_t unit) const { return int64_t{unit} + window < units(); }
  TILEWIRE_HD constexpr bool follows(int32_t unit) const { return unit >= window; }
  // From the start of the half of rank `at`.
  TILEWIRE_HD constexpr int64_t offset(Rank at, ChunkRef c) const {
    const int64_t row = rows_of(c).begin, shard = blocks.rows_of(c.source);
    if (c.source == at) return buffers.own_offset(pair_of(c) * shard + row);
    const int32_t slot = unit_of(at, c) % window;
    if (is_step_major) return buffers.received_offset(slot, pair_of(c) * shard + row);
    const int64_t left_out = c.source < at ? 0 : blocks.rows_of(at);
    return buffers.received_offset(slot, blocks.row_begin[c.source.value] - left_out + row);
  }

  // ---- needs
  TILEWIRE_HD constexpr Need begun(Rank source) const {
    return {frame.arena.flags.begun(source == me() ? me() : topology().deliverer(source, me())), 0};
  }
  TILEWIRE_HD constexpr Need arrived(ChunkRef c) const { return {buffers.word(kBlockArrived, c.source, c.chunk), 0}; }
  // That the slot in which the chunk comes to lie at `to` is free.
  TILEWIRE_HD constexpr Need slot_free(Rank to, ChunkRef c) const {
    return {buffers.word(kSlotFree, to, Chunk{unit_of(to, c) - window}), 0};
  }
  TILEWIRE_HD constexpr Need own_word(int32_t family, int32_t unit) const {
    return {buffers.word(family, me(), Chunk{unit}), 0};
  }

  // ---- who is told that the own slot of a unit is free: those who write what comes into it next
  TILEWIRE_HD constexpr Rank next_source(int32_t unit) const { return source_at(me(), unit + window + 1); }
  TILEWIRE_HD constexpr int32_t local_writers(int32_t unit) const {
    if (!is_step_major) return local_peers();
    return topology().entry_rank(next_source(unit), me()) == me() ? 0 : 1;
  }
  TILEWIRE_HD constexpr Rank local_writer(int32_t unit, int32_t i) const {
    return is_step_major ? topology().entry_rank(next_source(unit), me()) : topology().local_peer(me(), i);
  }
  TILEWIRE_HD constexpr bool has_remote_writer(int32_t unit) const {
    if (is_step_major) return enters_here(next_source(unit));
    return entering() > 0;
  }
  // Sources whose data enters this node here, nearest node first.
  TILEWIRE_HD constexpr int32_t entering() const {
    const Topology& t = topology();
    const int32_t width = t.ranks_on(here()), local = t.local(me()).value;
    int32_t count = 0;
    for (int32_t i = 0; i < other_nodes(); ++i) {
      const int32_t there = t.ranks_on(t.other_node(here(), i));
      if (there > local) count += (there - local + width - 1) / width;
    }
    return count;
  }
  TILEWIRE_HD constexpr Rank entering_source(int32_t number) const {
    const Topology& t = topology();
    const int32_t width = t.ranks_on(here()), local = t.local(me()).value;
    for (int32_t i = 0;; ++i) {
      const Node n = t.other_node(here(), i);
      const int32_t there = t.ranks_on(n);
      const int32_t count = there > local ? (there - local + width - 1) / width : 0;
      if (number < count) return t.rank_at(n, LocalRank{local + number * width});
      number -= count;
    }
  }
  // Whether anything of the unit may be forwarded from here.
  TILEWIRE_HD constexpr bool forwards(int32_t unit) const {
    if (local_peers() == 0) return false;
    return is_step_major ? enters_here(source_at(me(), unit + 1)) : entering() > 0;
  }

  // ---- compute
  TILEWIRE_HD constexpr int64_t items() const { return int64_t{pairs} * heads * tiles; }
  TILEWIRE_HD constexpr BlockRange looked_at(int32_t tile, Rank source) const {
    return tile_blocks[int64_t{tile} * ranks() + source.value];
  }
  // Whether the tile looks at that block of a source.
  TILEWIRE_HD constexpr bool is_looked_at(int32_t tile, ChunkRef block) const {
    const int32_t global = blocks.global(block);
    return wanted[int64_t{me().value} * blocks.total_chunks() + global] != 0 &&
           may_meet(tile_spans[tile], block_keys[global]);
  }
  TILEWIRE_HD constexpr RowRange tile_range(int32_t tile) const {
    const int64_t begin = tile * tile_rows, end = begin + tile_rows;
    return {begin, end < rows ? end : rows};
  }
  // Groups of pairs: one at first, so that work begins early, then more and more.
  TILEWIRE_HD constexpr int32_t group_end(int32_t begin) const {
    const int32_t doubled = begin < 1 ? 1 : begin, size = doubled < group_pairs ? doubled : group_pairs;
    return begin + size < pairs ? begin + size : pairs;
  }
};

}  // namespace tilewire::attention
