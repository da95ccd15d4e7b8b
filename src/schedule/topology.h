// Which rank sits on which node, and which ranks talk to each other. Nodes may have different numbers of ranks.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace tilewire {

// A view of three small tables (see TopologyTables), for the host and the GPU alike. It owns nothing.
struct Topology {
  int32_t ranks = 0;
  int32_t nodes = 0;
  const int32_t* node_of_rank = nullptr;   // [ranks]
  const int32_t* local_of_rank = nullptr;  // [ranks]
  const int32_t* node_first = nullptr;     // [nodes + 1], into rank_in_node
  const int32_t* rank_in_node = nullptr;   // [ranks], ranks grouped by node, in order of local rank

  TILEWIRE_HD constexpr Node node(Rank r) const { return Node{node_of_rank[r.value]}; }
  TILEWIRE_HD constexpr LocalRank local(Rank r) const { return LocalRank{local_of_rank[r.value]}; }
  TILEWIRE_HD constexpr int32_t ranks_on(Node n) const { return node_first[n.value + 1] - node_first[n.value]; }
  TILEWIRE_HD constexpr Rank rank_at(Node n, LocalRank l) const {
    return Rank{rank_in_node[node_first[n.value] + l.value]};
  }
  TILEWIRE_HD constexpr bool same_node(Rank a, Rank b) const { return node(a) == node(b); }

  // The rail partner of `r` on node `n`: local rank l mod L(n). On the own node it is `r` itself.
  TILEWIRE_HD constexpr Rank rail_partner(Rank r, Node n) const {
    return rank_at(n, LocalRank{local(r).value % ranks_on(n)});
  }
  // The rank of `receiver`'s node that hands `source`'s data to it: the source itself inside a node, else the source's
  // rail partner (which may be the receiver).
  TILEWIRE_HD constexpr Rank entry_rank(Rank source, Rank receiver) const {
    return same_node(source, receiver) ? source : rail_partner(source, node(receiver));
  }
  // The rank whose writes `receiver` sees when data of `source` reaches it.
  TILEWIRE_HD constexpr Rank deliverer(Rank source, Rank receiver) const {
    const Rank entry = entry_rank(source, receiver);
    return entry == receiver ? source : entry;
  }
  // The i-th peer in a rotation that starts behind the rank itself, so that no receiver is hit by all at once.
  TILEWIRE_HD constexpr Rank local_peer(Rank r, int32_t i) const {
    const Node n = node(r);
    return rank_at(n, LocalRank{(local(r).value + 1 + i) % ranks_on(n)});
  }
  TILEWIRE_HD constexpr Node other_node(Node n, int32_t i) const { return Node{(n.value + 1 + i) % nodes}; }

  // Whether `a` and `b` end calls together: same node, or one is the other's rail partner. Symmetric.
  TILEWIRE_HD constexpr bool ends_together(Rank a, Rank b) const {
    return same_node(a, b) || rail_partner(a, node(b)) == b || rail_partner(b, node(a)) == a;
  }
};

}  // namespace tilewire
