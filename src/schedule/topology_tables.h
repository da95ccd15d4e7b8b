// Owner of the tables behind a Topology. Host only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/topology.h"

namespace tilewire {

class TopologyTables {
 public:
  TopologyTables() = default;
  // Ranks 0..L0-1 on node 0, the next L1 on node 1, and so on. Throws Error(invalid_argument) on an empty layout or a
  // node without ranks.
  static TopologyTables from_layout(const std::vector<int32_t>& ranks_per_node);
  // node_of_rank[r] for every rank, any numbering of nodes from 0 without gaps; local ranks follow rank order.
  static TopologyTables from_nodes(const std::vector<int32_t>& node_of_rank);

  Topology view() const;
  std::string describe() const;  // "2+3": ranks of each node

 private:
  std::vector<int32_t> node_of_rank_, local_of_rank_, node_first_, rank_in_node_;
};

}  // namespace tilewire
