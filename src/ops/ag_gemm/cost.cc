#include "ops/ag_gemm/cost.h"

#include <algorithm>

#include "schedule/call_cost.h"

namespace tilewire::ag_gemm {
namespace {

class Workers {
 public:
  Workers(const Schedule& s, int64_t k, const std::vector<double>& arrivals_s, const Machine& machine)
      : s_(s), k_(k), arrivals_s_(arrivals_s), m_(machine), begun_s_(begin_cost_s(s.frame, machine)) {}

  ComputeEnds run() const {
    ComputeEnds ends;
    for (int32_t worker = 0; worker < s_.workers; ++worker) {
      double alone_s = 0, behind_s = 0;
      TileWork w;
      for (ComputeRole role(s_, worker); role.next(w);) {
        const TileCost cost = tile_cost(s_, w, k_);
        const double tile_s =
            m_.step_s + cost.flops / m_.worker_flops + static_cast<double>(cost.copied_bytes) / m_.copy_bytes_per_s;
        alone_s += tile_s;
        behind_s = std::max(behind_s, rows_ready_s(s_, w, arrivals_s_, begun_s_)) + tile_s;
      }
      ends.alone_s = std::max(ends.alone_s, alone_s);
      ends.behind_s = std::max(ends.behind_s, behind_s);
    }
    return ends;
  }

 private:
  const Schedule& s_;
  int64_t k_;
  const std::vector<double>& arrivals_s_;
  const Machine& m_;
  double begun_s_;
};

}  // namespace

double rows_ready_s(const Schedule& s, const TileWork& w, const std::vector<double>& arrivals_s, double begun_s) {
  double ready_s = 0;
  for (int32_t g = w.first_chunk; g < w.first_chunk + w.needs / 2; ++g) {
    ready_s = std::max({ready_s, arrivals_s[static_cast<size_t>(g)], s.chunks.at(g).source == s.me() ? 0 : begun_s});
  }
  return ready_s;
}

Cost call_cost(const Schedule& s, const ComputeEnds& ends, double gathered_s, const Machine& machine) {
  // Peers end the call together, so the slowest of their ways counts as well; without fusion their tiles come behind
  // it.
  const double slowest_s = gathered_s + (s.is_fused ? 0 : ends.alone_s);
  // The drain role looks at each source.
  const double roles_s = std::max(ends.behind_s, slowest_s) + s.topology().ranks * machine.step_s;
  return {.compute_s = ends.alone_s,
          .communication_s = gathered_s,
          .total_s = std::max(roles_s, begin_cost_s(s.frame, machine)) + end_cost_s(s.frame, machine)};
}

Cost predict(const Schedule& s, int64_t k, const std::vector<double>& arrivals_s, double gathered_s,
             const Machine& machine) {
  return call_cost(s, Workers(s, k, arrivals_s, machine).run(), gathered_s, machine);
}

}  // namespace tilewire::ag_gemm
