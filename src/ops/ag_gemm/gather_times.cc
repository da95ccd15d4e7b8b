#include "ops/ag_gemm/gather_times.h"

#include <algorithm>
#include <limits>

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

double GatherTimes::first_arrival_s(const ChunkMap& chunks, Node node,
                                    const std::vector<std::vector<double>>& arrivals_s) const {
  double latest_s = 0;
  for (size_t l = 0; l < arrivals_s.size(); ++l) {
    const Rank rank = x_.topology.rank_at(node, LocalRank{static_cast<int32_t>(l)});
    double first_s = std::numeric_limits<double>::max();
    for (int32_t g = 0; g < chunks.total_chunks(); ++g) {
      if (chunks.at(g).source != rank) first_s = std::min(first_s, arrivals_s[l][static_cast<size_t>(g)]);
    }
    if (first_s < std::numeric_limits<double>::max()) latest_s = std::max(latest_s, first_s);
  }
  return latest_s;
}

int64_t GatherTimes::most_rows() const { return *std::max_element(p_.rows.begin(), p_.rows.end()); }

int64_t GatherTimes::half_bytes() const { return buffers_of(p_, x_.arena).half_bytes(p_.total_rows()); }

std::string GatherTimes::reason_against(int64_t chunk_rows) const {
  return reason_against_chunks(chunk_rows, most_rows(), buffers_of(p_, x_.arena).pitch_bytes, x_);
}

PlanChoice GatherTimes::moving(const PlanChoice& choice) const {
  PlanChoice moving = choice;
  if (push_workers_ > 0) moving.push_workers = push_workers_;
  return moving;
}

const GatherTimes::Ends& GatherTimes::ends_s(const PlanChoice& choice) {
  const PlanChoice c = moving(choice);
  const auto [known, is_new] = ends_s_.try_emplace(moved_by(c));
  Ends& ends = known->second;
  if (!is_new) return ends;
  for (const Node node : telling_nodes(x_.topology, p_.rows)) {
    PlanContext there = x_;
    there.me = x_.topology.rank_at(node, LocalRank{0});
    const ScheduleTables tables(p_, c, there);
    const std::vector<std::vector<double>>& arrivals_s = tables.arrivals_s();
    ends.last = std::max(ends.last, last_arrival_s(arrivals_s));
    ends.first = std::max(ends.first, first_arrival_s(tables.schedule(1).chunks, node, arrivals_s));
  }
  return ends;
}

const std::vector<std::vector<double>>& GatherTimes::on_own_node_s(const PlanChoice& choice) {
  const PlanChoice c = moving(choice);
  std::vector<std::vector<double>>& known_s = arrivals_s_[moved_by(c)];
  if (known_s.empty()) known_s = ScheduleTables(p_, c, x_).arrivals_s();
  return known_s;
}

}  // namespace tilewire::ag_gemm
