#include "ops/ag_gemm/cost.h"

#include <algorithm>

#include "schedule/call_cost.h"

namespace tilewire::ag_gemm {
namespace {

// When the workers of a rank end: with all chunks here from the start, and with chunks as they arrive.
struct Ends {
  double alone_s = 0;
  double behind_s = 0;
};

class Workers {
 public:
  Workers(const Schedule& s, int64_t k, const std::vector<double>& arrivals_s, const Machine& machine)
      : s_(s), k_(k), arrivals_s_(arrivals_s), m_(machine), begun_s_(begin_cost_s(s.frame, machine)) {}

  Ends run() const {
    Ends ends;
    for (int32_t worker = 0; worker < s_.workers; ++worker) {
      double alone_s = 0, behind_s = 0;
      TileWork w;
      for (ComputeRole role(s_, worker); role.next(w);) {
        const TileCost cost = tile_cost(s_, w, k_);
        const double tile_s =
            m_.step_s + cost.flops / m_.worker_flops + static_cast<double>(cost.copied_bytes) / m_.copy_bytes_per_s;
        alone_s += tile_s;
        behind_s = std::max(behind_s, ready_s(w)) + tile_s;
      }
      ends.alone_s = std::max(ends.alone_s, alone_s);
      ends.behind_s = std::max(ends.behind_s, behind_s);
    }
    return ends;
  }

 private:
  double ready_s(const TileWork& w) const {
    double ready_s = 0;
    for (int32_t g = w.first_chunk; g < w.first_chunk + w.needs / 2; ++g) {
      ready_s =
          std::max({ready_s, arrivals_s_[static_cast<size_t>(g)], s_.chunks.at(g).source == s_.me() ? 0 : begun_s_});
    }
    return ready_s;
  }

  const Schedule& s_;
  int64_t k_;
  const std::vector<double>& arrivals_s_;
  const Machine& m_;
  double begun_s_;
};

}  // namespace

Cost predict(const Schedule& s, int64_t k, const std::vector<double>& arrivals_s, double gathered_s,
             const Machine& machine) {
  const Ends ends = Workers(s, k, arrivals_s, machine).run();
  // Peers end the call together, so the slowest of their ways counts as well; without fusion their tiles come behind
  // it.
  const double slowest_s = gathered_s + (s.is_fused ? 0 : ends.alone_s);
  // The drain role looks at each source.
  const double roles_s = std::max(ends.behind_s, slowest_s) + s.topology().ranks * machine.step_s;
  return {.compute_s = ends.alone_s,
          .communication_s = gathered_s,
          .total_s = std::max(roles_s, begin_cost_s(s.frame, machine)) + end_cost_s(s.frame, machine)};
}

}  // namespace tilewire::ag_gemm
