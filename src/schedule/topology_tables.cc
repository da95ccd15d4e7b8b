#include "schedule/topology_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tilewire/error.h>

#include <algorithm>

namespace tilewire {

TopologyTables TopologyTables::from_layout(const std::vector<int32_t>& ranks_per_node) {
  std::vector<int32_t> node_of_rank;
  for (size_t n = 0; n < ranks_per_node.size(); ++n) {
    if (ranks_per_node[n] < 1) {
      throw Error(ErrorKind::invalid_argument, {.what = "a node has no ranks",
                                                .where = "topology",
                                                .values = fmt::format("layout = {}", fmt::join(ranks_per_node, ",")),
                                                .limit = "at least 1 a node",
                                                .advice = "leave the node out"});
    }
    node_of_rank.insert(node_of_rank.end(), ranks_per_node[n], static_cast<int32_t>(n));
  }
  return from_nodes(node_of_rank);
}

TopologyTables TopologyTables::from_nodes(const std::vector<int32_t>& node_of_rank) {
  TopologyTables t;
  t.node_of_rank_ = node_of_rank;
  const int32_t nodes = node_of_rank.empty() ? 0 : *std::max_element(node_of_rank.begin(), node_of_rank.end()) + 1;
  std::vector<std::vector<int32_t>> members(std::max(nodes, 0));
  bool bad = node_of_rank.empty();
  for (size_t r = 0; r < node_of_rank.size() && !bad; ++r) {
    bad = node_of_rank[r] < 0;
    if (!bad) members[node_of_rank[r]].push_back(static_cast<int32_t>(r));
  }
  bad = bad || std::any_of(members.begin(), members.end(), [](const auto& m) { return m.empty(); });
  if (bad) {
    throw Error(ErrorKind::invalid_argument,
                {.what = "nodes of the ranks are not numbered 0..n-1 without gaps",
                 .where = "topology",
                 .values = fmt::format("node_of_rank = {}", fmt::join(node_of_rank, ","))});
  }
  t.local_of_rank_.resize(node_of_rank.size());
  t.node_first_.push_back(0);
  for (const auto& m : members) {
    for (size_t l = 0; l < m.size(); ++l) t.local_of_rank_[m[l]] = static_cast<int32_t>(l);
    t.rank_in_node_.insert(t.rank_in_node_.end(), m.begin(), m.end());
    t.node_first_.push_back(static_cast<int32_t>(t.rank_in_node_.size()));
  }
  return t;
}

Topology TopologyTables::view() const {
  return {.ranks = static_cast<int32_t>(node_of_rank_.size()),
          .nodes = static_cast<int32_t>(node_first_.size()) - 1,
          .node_of_rank = node_of_rank_.data(),
          .local_of_rank = local_of_rank_.data(),
          .node_first = node_first_.data(),
          .rank_in_node = rank_in_node_.data()};
}

std::string TopologyTables::describe() const {
  std::vector<int32_t> sizes;
  for (size_t n = 0; n + 1 < node_first_.size(); ++n) sizes.push_back(node_first_[n + 1] - node_first_[n]);
  return fmt::format("{}", fmt::join(sizes, "+"));
}

}  // namespace tilewire
