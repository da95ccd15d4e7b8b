#include "ops/ag_gemm/gather_times.h"

#include <algorithm>

#include "base/bytes.h"
#include "ops/ag_gemm/arrivals.h"

namespace tilewire::ag_gemm {
namespace {

// The nodes whose ranks may be the last to have all chunks: the one with fewest ranks, where all that comes enters by
// few ports; the one with most, which forwards most; and those with most and with fewest rows of a rank, which send and
// receive most.
std::vector<Node> telling_nodes(const Topology& t, const std::vector<int64_t>& rows) {
  std::vector<int64_t> rows_a_rank(static_cast<size_t>(t.nodes), 0);
  for (int32_t r = 0; r < t.ranks; ++r)
    rows_a_rank[static_cast<size_t>(t.node(Rank{r}).value)] += rows[static_cast<size_t>(r)];
  for (int32_t n = 0; n < t.nodes; ++n) rows_a_rank[static_cast<size_t>(n)] /= t.ranks_on(Node{n});
  Node narrow{0}, wide{0}, full{0}, bare{0};
  const auto rows_on = [&](Node n) { return rows_a_rank[static_cast<size_t>(n.value)]; };
  for (int32_t i = 1; i < t.nodes; ++i) {
    const Node n{i};
    if (t.ranks_on(n) < t.ranks_on(narrow)) narrow = n;
    if (t.ranks_on(n) > t.ranks_on(wide)) wide = n;
    if (rows_on(n) > rows_on(full)) full = n;
    if (rows_on(n) < rows_on(bare)) bare = n;
  }
  std::vector<Node> nodes;
  for (const Node n : {narrow, wide, full, bare}) {
    if (std::find(nodes.begin(), nodes.end(), n) == nodes.end()) nodes.push_back(n);
  }
  return nodes;
}

}  // namespace

int64_t GatherTimes::most_rows() const { return *std::max_element(p_.rows.begin(), p_.rows.end()); }

int64_t GatherTimes::half_bytes() const { return buffers_of(p_, x_.arena).half_bytes(p_.total_rows()); }

std::string GatherTimes::reason_against(int64_t chunk_rows) const {
  return reason_against_chunks(chunk_rows, most_rows(), buffers_of(p_, x_.arena).pitch_bytes, x_);
}

double GatherTimes::last_s(const PlanChoice& c) {
  const auto [known, is_new] = last_s_.try_emplace(moved_by(c), 0);
  if (!is_new) return known->second;
  for (const Node node : telling_nodes(x_.topology, p_.rows)) {
    PlanContext there = x_;
    there.me = x_.topology.rank_at(node, LocalRank{0});
    known->second = std::max(known->second, last_arrival_s(ScheduleTables(p_, c, there).arrivals_s()));
  }
  return known->second;
}

const std::vector<std::vector<double>>& GatherTimes::on_own_node_s(const PlanChoice& c) {
  std::vector<std::vector<double>>& known_s = arrivals_s_[moved_by(c)];
  if (known_s.empty()) known_s = ScheduleTables(p_, c, x_).arrivals_s();
  return known_s;
}

}  // namespace tilewire::ag_gemm
