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
  // Keeps both by reference. `push_workers`: taken for those of every plan; 0: each has its own.
  GatherTimes(const Problem& problem, const PlanContext& context, int32_t push_workers = 0)
      : p_(problem), x_(context), push_workers_(push_workers) {}

  int64_t most_rows() const;
  int64_t half_bytes() const;
  // "" or why chunks of so many rows cannot be.
  std::string reason_against(int64_t chunk_rows) const;

  // When the last rank has all chunks, if all have as many push workers. By agreed values alone.
  double last_s(const PlanChoice& choice) { return ends_s(choice).last; }
  // When the last rank has a first chunk of another one; 0 where there is none.
  double first_s(const PlanChoice& choice) { return ends_s(choice).first; }
  // As expected_arrivals_s(), of the ranks of the own node.
  const std::vector<std::vector<double>>& on_own_node_s(const PlanChoice& choice);

 private:
  // The numbers of a plan that arrivals depend on.
  using Movers = std::pair<int64_t, int32_t>;
  struct Ends {
    double first = 0, last = 0;
  };
  PlanChoice moving(const PlanChoice& choice) const;
  double first_arrival_s(const ChunkMap& chunks, Node node, const std::vector<std::vector<double>>& arrivals_s) const;
  const Ends& ends_s(const PlanChoice& choice);
  static Movers moved_by(const PlanChoice& c) { return {c.chunk_rows, c.push_workers}; }

  const Problem& p_;
  const PlanContext& x_;
  std::map<Movers, std::vector<std::vector<double>>> arrivals_s_;
  std::map<Movers, Ends> ends_s_;
  int32_t push_workers_;
};

}  // namespace tilewire::ag_gemm
