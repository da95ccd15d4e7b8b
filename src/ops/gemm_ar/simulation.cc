#include "ops/gemm_ar/simulation.h"

namespace tilewire::gemm_ar {

TimedReport simulate(const Problem& problem, const PlanChoice& choice, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace) {
  return simulate_op<RankModel>(problem, choice, topology, context, keeps_trace);
}

}  // namespace tilewire::gemm_ar
