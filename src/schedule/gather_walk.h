// In which order shards go to all ranks, whatever they are made of: to other nodes along the rails, and inside a node from
// where they come in to the local peers. A shard has chunks, numbered from 0.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "schedule/chunk_map.h"
#include "schedule/topology.h"

namespace tilewire {

// Each own chunk to every other node, the next one first.
class RailWalk {
 public:
  // False behind the last one. `to` is a node; the receiver there is the rail partner.
  TILEWIRE_HD constexpr bool next(const Topology& t, Rank me, int32_t own_chunks, Chunk& chunk, Node& to) {
    if (t.nodes < 2 || chunk_ >= own_chunks) return false;
    chunk = Chunk{chunk_};
    to = t.other_node(t.node(me), node_);
    if (++node_ == t.nodes - 1) {
      node_ = 0;
      ++chunk_;
    }
    return true;
  }
  // The number of the next chunk.
  TILEWIRE_HD constexpr int32_t chunk() const { return chunk_; }

 private:
  int32_t chunk_ = 0;
  int32_t node_ = 0;
};

// What comes in at a rank from other nodes, for its local peers: rounds over the chunk number; in a round every source
// that enters this node here, nearest node in the rotation first; for each all local peers. Dealt out among `workers`.
class ForwardWalk {
 public:
  TILEWIRE_HD constexpr ForwardWalk(const Topology& t, Rank me, int32_t worker, int32_t workers)
      : left_out_(worker), workers_(workers), local_(t.local(me).value) {}

  // `chunks_of(Rank)` is the number of a source's chunks.
  template <class ChunksOf>
  TILEWIRE_HD constexpr bool next(const Topology& t, Rank me, const ChunksOf& chunks_of, ChunkRef& chunk, Rank& to) {
    for (; left_out_ > 0; --left_out_) {
      if (!next_of_all(t, me, chunks_of, chunk, to)) return false;
    }
    left_out_ = workers_ - 1;
    return next_of_all(t, me, chunks_of, chunk, to);
  }

 private:
  template <class ChunksOf>
  TILEWIRE_HD constexpr bool next_of_all(const Topology& t, Rank me, const ChunksOf& chunks_of, ChunkRef& chunk,
                                         Rank& to) {
    const Node here = t.node(me);
    const int32_t width = t.ranks_on(here), peers = width - 1;
    if (peers == 0) return false;
    while (!is_last_round_) {
      for (; node_ < t.nodes - 1; ++node_, local_ = t.local(me).value) {
        const Node n = t.other_node(here, node_);
        for (; local_ < t.ranks_on(n); local_ += width, peer_ = 0) {
          const ChunkRef c{t.rank_at(n, LocalRank{local_}), Chunk{chunk_}};
          if (c.chunk.value >= chunks_of(c.source)) continue;
          has_more_ = true;
          if (peer_ == peers) continue;
          chunk = c;
          to = t.local_peer(me, peer_++);
          return true;
        }
      }
      is_last_round_ = !has_more_;
      has_more_ = false;
      node_ = 0;
      ++chunk_;
    }
    return false;
  }

  int32_t left_out_;  // pieces of work of other workers before the next one of this one
  int32_t workers_;
  int32_t chunk_ = 0;
  int32_t node_ = 0;
  int32_t local_;
  int32_t peer_ = 0;
  bool has_more_ = false;
  bool is_last_round_ = false;
};

}  // namespace tilewire
