#include "ops/gemm_rs/device_plan.h"

#include <algorithm>
#include <vector>

#include "ops/gemm_rs/layout.h"
#include "ops/gemm_rs/model.h"
#include "planning/op_simulation.h"
#include "planning/planner.h"
#include "reduction/tiled_planner.h"
#include "reduction/tiled_simulation.h"

namespace tilewire::gemm_rs {

constexpr int64_t kBandBlocks = 4;  // all ranks walk a few owners' chunks at a time: squares of the matrix
// About two of the rounds in which all clusters of a rank have a chunk: what goes over the network is then made before what
// does not, and the last chunks of a call have no way to go. (docs/decisions/0121)
constexpr int64_t kOwnBehind = 8;

// See planning/planner.h and reduction/tiled_planner.h.
class FusedPlanner : public TiledPlanner<FusedPlanner, FusedPlan, ScheduleTables> {
 public:
  static constexpr const char* kName = kCallName;

  FusedPlanner(const Problem& problem, const PlanContext& context) : TiledPlanner(problem, context) {
    check_one_count_a_rank(kName, p_.rows.size(), x_);
  }

  std::string reason_against_chunks_of(const PlanChoice& c) const {
    const ReductionCut cut = cut_of(p_, c);
    return reason_against_chunks(cut, reduction_needs(x_.topology, cut), wire_types(p_.wire_dtype).node_sum, x_);
  }
  std::vector<PlanChoice> shared_choices() const {
    return {
        PlanChoice{.band_blocks = kBandBlocks, .own_behind = x_.topology.nodes > 1 ? kOwnBehind : 0, .cursors = {}}};
  }

  double moving_s(const PlanChoice&, const ReductionCut& cut) const {
    const WireTypes wire = wire_types(p_.wire_dtype);
    const auto elements = static_cast<double>(p_.total_rows()) * static_cast<double>(p_.n);
    const double nodes = x_.topology.nodes, others = (nodes - 1) / nodes / width();
    return TiledPlanner::moving_s(elements * static_cast<double>(size_bytes(wire.partial)) * (width() - 1) / width(),
                                  elements * static_cast<double>(size_bytes(wire.node_sum)) * others,
                                  static_cast<double>(cut.chunks()) * others);
  }
  // Its sums, one after the other, and its way.
  double last_chunk_s(const PlanChoice&, const ReductionCut& cut) const {
    const WireTypes wire = wire_types(p_.wire_dtype);
    const auto elements = static_cast<double>(cut.chunk_rows * cut.chunk_cols);
    const double sum_s = step_s(elements * static_cast<double>(size_bytes(wire.partial)), width() + 1);
    if (x_.topology.nodes == 1) return sum_s;
    return 2 * sum_s + network_step_s(elements * static_cast<double>(size_bytes(wire.node_sum)));
  }
};

FusedTables::FusedTables(const Problem& problem, const FusedPlan& plan, const PlanContext& context)
    : TiledTables(problem, plan, context, [](int32_t ctas) { return ctas - kRankWarps; }) {}

TimedReport simulate(const Problem& problem, const FusedPlan& plan, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace) {
  return simulate(problem, plan.choice, topology, as_simulated<FusedPlanner>(problem, plan, context), keeps_trace);
}

}  // namespace tilewire::gemm_rs

template struct tilewire::PlansOf<tilewire::gemm_rs::FusedPlan>;
