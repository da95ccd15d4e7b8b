#include "ops/moe_dispatch/device_plan.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "device/comm/device_rank.h"
#include "operands/matrix_checks.h"
#include "ops/moe_dispatch/device_limits.h"
#include "ops/moe_dispatch/dispatch_times.h"
#include "ops/moe_dispatch/model.h"
#include "ops/moe_dispatch/shared_plan.h"
#include "planning/op_simulation.h"
#include "planning/planner.h"

namespace tilewire::moe_dispatch {
namespace {

constexpr int32_t kRasterRows = 16;  // row blocks of an expert behind each other have its weight in the cache

}  // namespace

// See planning/planner.h.
class FusedPlanner : public PlannerOf<FusedPlan> {
 public:
  static constexpr const char* kName = kCallName;
  static constexpr const char* kSharedCost = kPricedAs;

  FusedPlanner(const Problem& problem, const PlanContext& context) : PlannerOf(problem, context) {
    check_placement(p_, x_);
    if (p_.out_dtype != p_.dtype) {
      refuse_argument(kName, "results have a dtype of their own", to_string(p_.out_dtype),
                      fmt::format("{} on a GPU", to_string(p_.dtype)));
    }
    const int32_t nodes = x_.topology.nodes, most = most_counts(FusedPlan::kForms[0]);
    if (p_.experts() + nodes > most) {
      refuse_argument(kName, "there are too many experts for a kernel", fmt::format("{} experts", p_.experts()),
                      fmt::format("at most {} on {} nodes", most - nodes, nodes));
    }
    for (int32_t n = 0; n < nodes; ++n) {
      if (x_.topology.ranks_on(Node{n}) <= kMostLocalRanks) continue;
      refuse_argument(kName, "a node has too many ranks for a kernel",
                      fmt::format("{} ranks", x_.topology.ranks_on(Node{n})),
                      fmt::format("at most {}", kMostLocalRanks));
    }
  }

  int64_t half_bytes(const FusedPlan& plan) const { return buffers_of(p_, plan.choice, x_).end(); }
  std::string reason_against(const FusedPlan& plan) const {
    const FormNumbers* form = form_of(plan);
    if (form == nullptr) return "no kernel has such tiles";
    if (plan.choice.workers < kRankWarps + 1 || plan.choice.workers % form->launch_ctas != 0) {
      return fmt::format("no grid has {} CTAs: {} or more, in clusters of {}", plan.choice.workers, kRankWarps + 1,
                         form->launch_ctas);
    }
    return reason_against_shared(p_, plan.choice, x_);
  }

  std::vector<FusedPlan> shared_candidates() const {
    std::vector<FusedPlan> plans;
    for (const PlanChoice& choice : shared_choices(p_, x_)) {
      FusedPlan plan = with_shared(choice, FusedPlan::kForms[0]);
      plan.choice.workers = equal_ctas();
      plans.push_back(plan);
    }
    return plans;
  }
  // All ranks take an equal part of a GPU, and tiles that are best there.
  double shared_cost_s(const FusedPlan& plan) const {
    if (p_.counts_only) return 0;
    double least_s = std::numeric_limits<double>::infinity();
    for (const FormNumbers& form : FusedPlan::kForms) {
      const FusedPlan of_form = with_shared(plan.choice, form);
      least_s = std::min(least_s, DispatchTimes(p_, of_form, x_, kPricedCols, equal_ctas()).cost().total_s);
    }
    return least_s;
  }

  std::vector<FusedPlan> candidates(const FusedPlan& shared) const {
    const int32_t cluster = FusedPlan::kForms[0].launch_ctas, ctas = x_.workers / cluster * cluster;
    if (ctas < kRankWarps + 1) {
      throw Error(ErrorKind::resource, {.what = "no SM is left to compute with",
                                        .where = kName,
                                        .values = fmt::format("{} SMs", x_.workers),
                                        .limit = fmt::format("{} at least", kRankWarps + 1)});
    }
    std::vector<FusedPlan> plans;
    for (const FormNumbers& form : FusedPlan::kForms) {
      for (const bool is_fused : {true, false}) {
        FusedPlan plan = with_shared(shared.choice, form);
        plan.choice.workers = ctas;
        plan.choice.is_fused = is_fused;
        plans.push_back(plan);
        if (p_.counts_only) return plans;
      }
    }
    return plans;
  }
  Cost predict(const FusedPlan& plan) const {
    if (p_.counts_only) return {};
    return DispatchTimes(p_, plan, x_, p_.cols, plan.choice.workers).cost();
  }

 private:
  int32_t equal_ctas() const {
    const int32_t cluster = FusedPlan::kForms[0].launch_ctas;
    return kH200Workers / std::max(1, x_.machine.ranks_per_gpu) / cluster * cluster;
  }
  static FusedPlan with_shared(const PlanChoice& shared, const FormNumbers& form) {
    FusedPlan plan;
    plan.choice = shared;
    plan.choice.tile_rows = form.work_rows();
    plan.choice.tile_cols = form.work_cols();
    plan.choice.raster_rows = kRasterRows;
    return plan;
  }
};

const FormNumbers* form_of(const FusedPlan& plan) {
  for (const FormNumbers& form : FusedPlan::kForms) {
    if (plan.choice.tile_rows == form.work_rows() && plan.choice.tile_cols == form.work_cols()) return &form;
  }
  return nullptr;
}

TimedReport simulate(const Problem& problem, const FusedPlan& plan, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace) {
  const FormNumbers& form = *form_of(plan);
  PlanContext clusters = context;
  PlanChoice choice = plan.choice;
  choice.workers /= form.cluster_ctas();
  const double tile_s = DispatchTimes(problem, plan, context, problem.cols, plan.choice.workers).tile_s();
  if (problem.h > 0) {
    clusters.machine.worker_flops = gemm_tile_flops(choice.tile_rows, choice.tile_cols, problem.h) / tile_s;
  }
  return simulate(problem, choice, topology, clusters, keeps_trace);
}

}  // namespace tilewire::moe_dispatch

template struct tilewire::PlansOf<tilewire::moe_dispatch::FusedPlan>;
