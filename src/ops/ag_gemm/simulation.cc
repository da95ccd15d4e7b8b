#include "ops/ag_gemm/simulation.h"

namespace tilewire::ag_gemm {

TimedReport simulate(const Problem& problem, const PlanChoice& choice, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace) {
  return simulate_op<RankModel>(problem, choice, topology, context, keeps_trace);
}

}  // namespace tilewire::ag_gemm
