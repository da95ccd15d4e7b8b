// When the rows of a call are with the ranks, for planners: asked again and again for plans that move chunks alike, and
// walked once for each.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "ops/ag_gemm/plan.h"

namespace tilewire::ag_gemm {

class GatherTimes {
 public:
  // Keeps both by reference.
  GatherTimes(const Problem& problem, const PlanContext& context) : p_(problem), x_(context) {}

  int64_t most_rows() const;
  int64_t half_bytes() const;
  // "" or why chunks of so many rows cannot be.
  std::string reason_against(int64_t chunk_rows) const;

  // When the last rank has all chunks, if all have as many push workers. By agreed values alone.
  double last_s(const PlanChoice& choice);
  // As expected_arrivals_s(), of the ranks of the own node.
  const std::vector<std::vector<double>>& on_own_node_s(const PlanChoice& choice);

 private:
  // The numbers of a plan that arrivals depend on.
  using Movers = std::pair<int64_t, int32_t>;
  static Movers moved_by(const PlanChoice& c) { return {c.chunk_rows, c.push_workers}; }

  const Problem& p_;
  const PlanContext& x_;
  std::map<Movers, std::vector<std::vector<double>>> arrivals_s_;
  std::map<Movers, double> last_s_;
};

}  // namespace tilewire::ag_gemm
