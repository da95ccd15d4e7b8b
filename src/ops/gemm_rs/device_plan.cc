#include "ops/gemm_rs/device_plan.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "device/comm/device_rank.h"
#include "operands/matrix_checks.h"
#include "ops/gemm_rs/layout.h"
#include "ops/gemm_rs/simulation.h"
#include "planning/planner.h"
#include "schedule/call_cost.h"

namespace tilewire::gemm_rs {
namespace {

constexpr int32_t kTeamWarps = 8;        // that add up a chunk together
constexpr double kSumBytesPerS = 2.5e9;  // that one warp beside the tiles reads and writes
constexpr int64_t kBandBlocks = 4;       // all ranks walk a few owners' chunks at a time: squares of the matrix
constexpr int64_t kWindow = 16;          // where not every chunk can have a slot
constexpr int64_t kPricedDepth = 4096;   // what the shared part is priced with, as K is each rank's own
constexpr std::pair<int64_t, int64_t> kChunks[] = {{64, 128}, {128, 256}, {256, 256}, {256, 512}, {512, 1024}};

}  // namespace

// See planning/planner.h.
class FusedPlanner : public PlannerOf<FusedPlan> {
 public:
  static constexpr const char* kName = kCallName;
  static constexpr const char* kSharedCost = "with K = 4096";

  FusedPlanner(const Problem& problem, const PlanContext& context) : PlannerOf(problem, context) {
    check_one_count_a_rank(kName, p_.rows.size(), x_);
    check_kernel_type(kName, p_.dtype);
  }

  int64_t half_bytes(const FusedPlan& plan) const { return layout_of(p_, plan.choice, x_).end; }
  std::string reason_against(const FusedPlan& plan) const {
    if (form_of(plan) == nullptr) return "no kernel has such tiles";
    if (!plan.choice.is_fused && plan.choice.window > 0) {
      return "is_fused = false and window > 0: chunks under a window cannot all be made before any is added up";
    }
    const ReductionCut cut = cut_of(p_, plan.choice);
    return reason_against_chunks(cut, reduction_needs(x_.topology, cut), wire_types(p_.wire_dtype).node_sum, x_);
  }

  std::vector<FusedPlan> shared_candidates() const {
    std::vector<FusedPlan> plans;
    for (const auto& [rows, cols] : kChunks) {
      FusedPlan plan;
      plan.choice.chunk_rows = rows;
      plan.choice.chunk_cols = cols;
      const ReductionCut cut = cut_of(p_, plan.choice);
      plan.choice.chunk_rows = cut.chunk_rows;
      plan.choice.chunk_cols = cut.chunk_cols;
      plan.choice.band_blocks = kBandBlocks;
      if (!reason_against_reserve(half_bytes(plan), x_).empty()) plan.choice.window = kWindow;
      const auto is_same = [&](const FusedPlan& other) { return other.agreed() == plan.agreed(); };
      if (std::none_of(plans.begin(), plans.end(), is_same)) plans.push_back(plan);
    }
    return plans;
  }
  // By agreed values: all ranks take an equal part of a GPU, and multiply as much.
  double shared_cost_s(const FusedPlan& shared) const {
    double best_s = 0;
    const int32_t sms = kH200Workers / std::max(1, x_.machine.ranks_per_gpu);
    for (const FusedPlan& plan : forms_of(shared, sms)) {
      const double seconds = cost_of(plan, kPricedDepth).total_s;
      if (best_s == 0 || seconds < best_s) best_s = seconds;
    }
    return best_s;
  }

  // Of equals the first is taken.
  std::vector<FusedPlan> candidates(const FusedPlan& shared) const {
    std::vector<FusedPlan> plans = forms_of(shared, x_.workers);
    if (plans.empty()) {
      throw Error(ErrorKind::resource, {.what = "no SM is left to compute with",
                                        .where = kName,
                                        .values = fmt::format("{} SMs", x_.workers),
                                        .limit = fmt::format("{} at least", kRankWarps + 1)});
    }
    if (shared.choice.window > 0 || x_.topology.ranks == 1) return plans;
    for (size_t i = 0, fused = plans.size(); i < fused; ++i) {
      plans.push_back(plans[i]);
      plans.back().choice.is_fused = false;
    }
    return plans;
  }
  Cost predict(const FusedPlan& plan) const { return cost_of(plan, p_.k); }

  // Of a chunk in one cluster.
  double chunk_s(const FusedPlan& plan, const ReductionCut& cut, int64_t k) const {
    const FormNumbers& form = *form_of(plan);
    const int64_t works = div_up(cut.chunk_rows, form.work_rows()) * div_up(cut.chunk_cols, form.work_cols());
    const CacheUse use = cache_use(x_.machine.ranks_per_gpu, div_up(chunks_of(cut) * works, plan.choice.workers));
    return static_cast<double>(works) * tile_clocks(form, k, use) * kFlopsPerClock / x_.machine.worker_flops;
  }

 private:
  static std::vector<FusedPlan> forms_of(const FusedPlan& shared, int32_t sms) {
    std::vector<FusedPlan> plans;
    for (const FormNumbers& form : kFusedForms) {
      if (sms < std::max(kRankWarps + 1, form.launch_ctas)) continue;
      FusedPlan plan = shared;
      plan.tile_rows = form.work_rows();
      plan.tile_cols = form.work_cols();
      plan.choice.workers = sms / form.launch_ctas * form.launch_ctas / form.cluster_ctas();
      plan.choice.reduce_workers = std::clamp(sms / kTeamWarps, 1, 256);
      plans.push_back(plan);
    }
    return plans;
  }

  int64_t chunks_of(const ReductionCut& cut) const {
    int64_t blocks = 0;
    for (const int64_t rows : p_.rows) blocks += div_up(rows, cut.chunk_rows);
    return blocks * cut.col_blocks();
  }
  double product_s(const FusedPlan& plan, const ReductionCut& cut, int64_t k) const {
    return static_cast<double>(div_up(chunks_of(cut), plan.choice.workers)) * chunk_s(plan, cut, k);
  }
  // What goes from each rank to ranks of its node, and to the network.
  double moving_s(const ReductionCut& cut) const {
    const Topology& t = x_.topology;
    const Machine& m = x_.machine;
    const WireTypes wire = wire_types(p_.wire_dtype);
    const auto elements = static_cast<double>(p_.total_rows()) * static_cast<double>(p_.n);
    const double ranks = t.ranks, nodes = t.nodes, width = ranks / nodes;
    const double inside_s =
        elements * static_cast<double>(size_bytes(wire.partial)) * (width - 1) / width / m.node_bytes_per_s;
    const double between_s =
        elements * static_cast<double>(size_bytes(wire.node_sum)) * (nodes - 1) / nodes / width / m.network_bytes_per_s;
    const double commands_s = static_cast<double>(chunks_of(cut)) * (nodes - 1) / nodes / width * m.command_s;
    return std::max({inside_s, between_s, commands_s});
  }
  // Of a chunk behind its last product: its sums, one after the other, and its way.
  double last_chunk_s(const ReductionCut& cut) const {
    const Machine& m = x_.machine;
    const WireTypes wire = wire_types(p_.wire_dtype);
    const auto elements = static_cast<double>(cut.chunk_rows * cut.chunk_cols);
    const double width = static_cast<double>(x_.topology.ranks) / x_.topology.nodes;
    const double sum_s =
        elements * static_cast<double>(size_bytes(wire.partial)) * (width + 1) / (kTeamWarps * kSumBytesPerS);
    if (x_.topology.nodes == 1) return m.node_latency_s + m.step_s + sum_s;
    return 2 * (m.node_latency_s + m.step_s + sum_s) + m.network_latency_s + m.command_s +
           elements * static_cast<double>(size_bytes(wire.node_sum)) / m.network_bytes_per_s;
  }
  Cost cost_of(const FusedPlan& plan, int64_t k) const {
    const ReductionCut cut = cut_of(p_, plan.choice);
    const Schedule s = ScheduleTables(p_, plan.choice, x_).schedule(1);
    const double around_s = begin_cost_s(s.frame, x_.machine) + end_cost_s(s.frame, x_.machine);
    if (chunks_of(cut) == 0) return {.total_s = around_s};
    const double compute_s = product_s(plan, cut, k), communication_s = moving_s(cut);
    const double both_s = plan.choice.is_fused ? std::max(compute_s, communication_s) : compute_s + communication_s;
    return {
        .compute_s = compute_s, .communication_s = communication_s, .total_s = around_s + both_s + last_chunk_s(cut)};
  }
};

const FormNumbers* form_of(const FusedPlan& plan) {
  for (const FormNumbers& form : kFusedForms) {
    if (form.work_rows() == plan.tile_rows && form.work_cols() == plan.tile_cols) return &form;
  }
  return nullptr;
}

FusedTables::FusedTables(const Problem& problem, const FusedPlan& plan, const PlanContext& context)
    : tables_(problem, plan.choice, context) {
  const FormNumbers& form = *form_of(plan);
  const int32_t least = std::max(kRankWarps + 1, plan.choice.workers * form.cluster_ctas());
  ctas_ = static_cast<int32_t>(round_up(least, form.launch_ctas));
  workers_ = ctas_ / form.cluster_ctas();
  reduce_workers_ = std::min(plan.choice.reduce_workers, ctas_ - kRankWarps);
}

Schedule FusedTables::schedule(Epoch epoch) const {
  Schedule schedule = tables_.schedule(epoch);
  schedule.workers = workers_;
  schedule.reduce_workers = reduce_workers_;
  return schedule;
}

TimedReport simulate(const Problem& problem, const FusedPlan& plan, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace) {
  // The clusters' rate is the one at which a chunk takes what the planner says.
  PlanContext clusters = context;
  const ReductionCut cut = cut_of(problem, plan.choice);
  const double chunk_s = FusedPlanner(problem, context).chunk_s(plan, cut, problem.k);
  if (problem.k > 0)
    clusters.machine.worker_flops = gemm_tile_flops(cut.chunk_rows, cut.chunk_cols, problem.k) / chunk_s;
  return simulate(problem, plan.choice, topology, clusters, keeps_trace);
}

}  // namespace tilewire::gemm_rs

template struct tilewire::PlansOf<tilewire::gemm_rs::FusedPlan>;
