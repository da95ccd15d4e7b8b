#include "ops/gemm_ar/device_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/bytes.h"
#include "ops/gemm_ar/helper_deal.h"
#include "ops/gemm_ar/layout.h"
#include "ops/gemm_ar/model.h"
#include "planning/op_simulation.h"
#include "planning/plan_json.h"
#include "planning/planner.h"
#include "reduction/tiled_planner.h"
#include "reduction/tiled_simulation.h"

namespace tilewire::gemm_ar {

// Finished chunks are sent so many rounds behind the node sums. With fewer, sums that are ready wait in the ring behind
// results that are not: with 2 a call of 2 nodes x 2 ranks of one GPU took 1.7 times as long, with 16 as long as with 8.
// Of few rounds the last results would all be sent behind the last sums: 1250 us with 8 of 32 rounds, 949 with 4.
constexpr int32_t kGathersBehind = 8, kFewestBehind = 2, kRoundsABehind = 8;

// See planning/planner.h and reduction/tiled_planner.h.
class FusedPlanner : public TiledPlanner<FusedPlanner, FusedPlan, ScheduleTables> {
 public:
  static constexpr const char* kName = kCallName;

  FusedPlanner(const Problem& problem, const PlanContext& context) : TiledPlanner(problem, context) {}

  std::string reason_against_chunks_of(const PlanChoice& c) const {
    if (c.is_one_shot && c.window > 0) return kOneShotUnderWindow;
    const ReductionCut cut = cut_of(p_, c);
    return reason_against_chunks(cut, needs_of(cut, c, x_), largest_sent(p_), x_);
  }
  // Of forms that cost the same the first one is taken: two shots need less memory.
  static std::vector<PlanChoice> shared_choices() {
    return {PlanChoice{.is_one_shot = false, .cursors = {}}, PlanChoice{.is_one_shot = true, .cursors = {}}};
  }
  void complete(PlanChoice& choice, const ReductionCut& cut) const {
    if (choice.is_one_shot) return;
    const int64_t rounds = div_up(cut.chunks(), x_.topology.ranks);
    choice.gather_behind =
        static_cast<int32_t>(std::clamp<int64_t>(rounds / kRoundsABehind, kFewestBehind, kGathersBehind));
  }

  // Two shots: what a reduction sends, and then as much of the result. One shot: every rank of the node gets all products,
  // and all node sums.
  double moving_s(const PlanChoice& c, const ReductionCut& cut) const {
    const auto elements = static_cast<double>(p_.m) * static_cast<double>(p_.n);
    const auto chunks = static_cast<double>(cut.chunks());
    const double nodes = x_.topology.nodes, in_node = (width() - 1) / width(), between = (nodes - 1) / nodes / width();
    const double helping_s = elements * longest_helping_s(c);
    if (!c.is_one_shot) {
      return std::max(
          helping_s, TiledPlanner::moving_s(elements * in_node * (partial_bytes() + result_bytes()),
                                            elements * between * (sum_bytes() + result_bytes()), 2 * chunks * between));
    }
    const double forwarded = (nodes - 1) * in_node;
    return std::max(helping_s,
                    TiledPlanner::moving_s(elements * ((width() - 1) * partial_bytes() + forwarded * sum_bytes()),
                                           elements * nodes * between * sum_bytes(), chunks * nodes * between));
  }
  // Its sums, one after the other, and its way, and that of the result.
  double last_chunk_s(const PlanChoice& c, const ReductionCut& cut) const {
    const auto elements = static_cast<double>(cut.chunk_rows * cut.chunk_cols);
    const bool has_network = x_.topology.nodes > 1;
    const double sum_s = step_s(elements * partial_bytes(), width() + 1);
    if (c.is_one_shot) {
      if (!has_network) return sum_s;
      return 2 * sum_s + network_step_s(elements * sum_bytes()) + step_s(elements * sum_bytes(), 2);
    }
    const double collect_s = step_s(elements * result_bytes(), 2);
    if (!has_network) return sum_s + collect_s;
    return 2 * sum_s + network_step_s(elements * sum_bytes()) + network_step_s(elements * result_bytes()) +
           2 * collect_s;
  }

 private:
  double partial_bytes() const { return static_cast<double>(size_bytes(wire_types(p_.wire_dtype).partial)); }
  double sum_bytes() const { return static_cast<double>(size_bytes(wire_types(p_.wire_dtype).node_sum)); }
  double result_bytes() const { return static_cast<double>(size_bytes(p_.out_dtype)); }
  // Of an element of the matrix, what the role takes for it on the average whose helpers have most to read and write. By
  // agreed values, as the shared part is priced with it.
  double longest_helping_s(const PlanChoice& c) const {
    const double width = this->width(), others = x_.topology.nodes - 1, ranks = x_.topology.ranks;
    const double node_sum = width * partial_bytes(), all_sums = node_sum + others * sum_bytes();
    const double reduced = others * (node_sum + sum_bytes()), finished = all_sums + result_bytes();
    const double also_stored = (width - 1) + (others > 0 ? 1 : 0);
    const HelperDeal deal(c.is_one_shot, others > 0, helpers_of(kH200Workers / std::max(1, x_.machine.ranks_per_gpu)));
    const auto seconds = [&](int32_t role, double bytes) {
      return bytes / (std::max(1, deal.members(role)) * kSumBytesPerS);
    };
    if (c.is_one_shot) {
      return std::max({seconds(kReduceRole, others > 0 ? (node_sum + sum_bytes()) / width : 0),
                       seconds(kFinishRole, finished),
                       seconds(kForwardRole, others * (width - 1) * 2 * sum_bytes() / width)});
    }
    return std::max({seconds(kReduceRole, reduced / ranks),
                     seconds(kFinishRole, (finished + also_stored * result_bytes()) / ranks),
                     seconds(kForwardRole, others * (width - 1) * 2 * result_bytes() / ranks),
                     seconds(kCollectRole, (ranks - 1) * 2 * result_bytes() / ranks)});
  }
};

FusedTables::FusedTables(const Problem& problem, const FusedPlan& plan, const PlanContext& context)
    : TiledTables(problem, plan, context, [&](int32_t ctas) {
        return HelperDeal(plan.choice.is_one_shot, context.topology.nodes > 1, helpers_of(ctas)).most_teams();
      }) {}

TimedReport simulate(const Problem& problem, const FusedPlan& plan, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace) {
  return simulate(problem, plan.choice, topology, as_simulated<FusedPlanner>(problem, plan, context), keeps_trace);
}

std::string to_json(const FusedPlan& plan) { return choice_to_json(kCallName, plan); }

FusedPlan FusedPlan::from_json(const std::string& json) { return choice_from_json<FusedPlan>(kCallName, json); }

std::string FusedPlan::text() const { return fmt::format("{}, tiles {}", choice.text(), name_of_form(*this)); }

}  // namespace tilewire::gemm_ar

template struct tilewire::PlansOf<tilewire::gemm_ar::FusedPlan>;
