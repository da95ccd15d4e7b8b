// What planners of fused kernels have in common that sum products over ranks (see planning/planner.h): every CTA computes,
// in clusters of a tile form, and warps beside the tiles add up and copy. Pure host code that needs no CUDA.
//
// Plan is the op's: see tiled_plan.h.
#pragma once

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "operands/matrix_checks.h"
#include "planning/planner.h"
#include "reduction/reduction_planner.h"
#include "reduction/tiled_plan.h"
#include "reduction/wire_types.h"
#include "schedule/call_cost.h"
#include "schedule/reduction_tables.h"

namespace tilewire {

inline constexpr int32_t kTeamWarps = 8;  // that add up a chunk together, about: where roles share the helpers fewer
inline constexpr int64_t kStoredNumbers = 8;  // that a kernel may store at once, 16 bytes of two each
inline constexpr const char* kUnalignedChunks =
    "chunk_cols is no multiple of 8, and there are several blocks of columns: a kernel stores 16 bytes at once";
// That one warp beside the tiles reads and writes: 2.5 to 3.7e9 were measured.
inline constexpr double kSumBytesPerS = 3e9;
// Of a chunk for each warp of its team, about; two warps of each SM add up. Calls with chunks of 64 x 128 took 88 us so, 101
// with a warp to a team and 109 with four teams.
inline constexpr int64_t kWarpNumbers = 2048;
// How much longer tiles take where ranks share a GPU's cache and a chunk is one tile wide, so that no other CTA reads the same
// rows: 1.6 % (K = 4096) to 7 % (8192) were measured.
inline constexpr double kNarrowChunk = 1.04;
inline constexpr int64_t kTiledWindow = 16;  // where not every chunk can have a slot
// What the shared part is priced with, as K is each rank's own: so deep that products are not hidden behind what is sent
// twice.
inline constexpr int64_t kTiledDepth = 5120;
inline constexpr std::pair<int64_t, int64_t> kTiledChunks[] = {
    {64, 128}, {128, 256}, {256, 256}, {256, 512}, {512, 1024}};

// Of Planner, which derives from this, and beside its kName it has
//   reason_against_chunks_of(Choice)            "" or why the shared part cannot be, memory aside
//   shared_choices()                            what is tried with every size of chunks
//   complete(Choice&, ReductionCut)             what follows from that size, if anything does
//   moving_s(Choice, ReductionCut)              what goes from each rank to ranks of its node, and to the network
//   last_chunk_s(Choice, ReductionCut)          of a chunk behind its last product
// The op's cut_of(), layout_of() and ScheduleTables are found beside its Problem.
template <class Planner, class Plan, class Tables>
class TiledPlanner : public PlannerOf<Plan> {
 public:
  using typename PlannerOf<Plan>::Problem;
  using Choice = Plan;
  static constexpr const char* kSharedCost = "with K = 5120";

  int64_t half_bytes(const Plan& plan) const { return layout_of(p_, plan.choice, x_).end; }
  std::string reason_against(const Plan& plan) const {
    if (form_of(plan) == nullptr) return "no kernel has such tiles";
    if (!plan.choice.is_fused && plan.choice.window > 0) return kUnfusedUnderWindow;
    const ReductionCut cut = cut_of(p_, plan.choice);
    if (cut.chunk_cols % kStoredNumbers != 0 && cut.chunk_cols < cut.cols) return kUnalignedChunks;
    return self().reason_against_chunks_of(plan.choice);
  }

  std::vector<Plan> shared_candidates() const {
    std::vector<Plan> plans;
    for (const auto& choice : self().shared_choices()) {
      for (const auto& [rows, cols] : kTiledChunks) {
        Plan plan;
        plan.choice = choice;
        plan.choice.chunk_rows = rows;
        plan.choice.chunk_cols = cols;
        const ReductionCut cut = cut_of(p_, plan.choice);
        plan.choice.chunk_rows = cut.chunk_rows;
        plan.choice.chunk_cols = cut.chunk_cols;
        self().complete(plan.choice, cut);
        if (!reason_against_reserve(half_bytes(plan), x_).empty()) plan.choice.window = kTiledWindow;
        const auto is_same = [&](const Plan& other) { return other.agreed() == plan.agreed(); };
        if (std::none_of(plans.begin(), plans.end(), is_same)) plans.push_back(plan);
      }
    }
    return plans;
  }
  // By agreed values: all ranks take an equal part of a GPU, and multiply as much.
  double shared_cost_s(const Plan& shared) const {
    double best_s = 0;
    const int32_t sms = kH200Workers / std::max(1, x_.machine.ranks_per_gpu);
    for (const Plan& plan : forms_of(shared, sms)) {
      const double seconds = cost_of(plan, kTiledDepth).total_s;
      if (best_s == 0 || seconds < best_s) best_s = seconds;
    }
    return best_s;
  }

  // Of equals the first is taken.
  std::vector<Plan> candidates(const Plan& shared) const {
    std::vector<Plan> plans = forms_of(shared, x_.workers);
    if (plans.empty()) {
      throw Error(ErrorKind::resource, {.what = "no SM is left to compute with",
                                        .where = Planner::kName,
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
  Cost predict(const Plan& plan) const { return cost_of(plan, p_.k); }

  // Of a chunk in one cluster.
  double chunk_s(const Plan& plan, const ReductionCut& cut, int64_t k) const {
    const FormNumbers& form = *form_of(plan);
    const int64_t works = div_up(cut.chunk_rows, form.work_rows()) * div_up(cut.chunk_cols, form.work_cols());
    const CacheUse use = cache_use(x_.machine.ranks_per_gpu, div_up(cut.chunks() * works, plan.choice.workers));
    const bool is_narrow =
        x_.machine.ranks_per_gpu > 1 && cut.chunk_rows >= form.work_rows() && cut.chunk_cols <= form.work_cols();
    const double clocks = tile_clocks(form, k, use) * (is_narrow ? kNarrowChunk : 1);
    return static_cast<double>(works) * clocks * kFlopsPerClock / x_.machine.worker_flops;
  }

 protected:
  using PlannerOf<Plan>::p_;
  using PlannerOf<Plan>::x_;

  TiledPlanner(const Problem& problem, const PlanContext& context) : PlannerOf<Plan>(problem, context) {
    check_kernel_type(Planner::kName, p_.dtype);
  }

  static void complete(auto&, const ReductionCut&) {}
  // Ranks of a node, on the average.
  double width() const { return static_cast<double>(x_.topology.ranks) / x_.topology.nodes; }
  // From each rank to ranks of its node, to those of other nodes, and so many commands for the latter: as many arrive.
  double moving_s(double node_bytes, double network_bytes, double commands) const {
    const Machine& m = x_.machine;
    return std::max({node_bytes / m.node_bytes_per_s, network_bytes / m.network_bytes_per_s, commands * handling_s()});
  }
  // A step of a chunk's way inside the node: a team reads and writes so many times `bytes`, and tells it.
  double step_s(double bytes, double times) const {
    return x_.machine.node_latency_s + x_.machine.step_s + bytes * times / (kTeamWarps * kSumBytesPerS);
  }
  double network_step_s(double bytes) const {
    const Machine& m = x_.machine;
    return m.network_latency_s + handling_s() + bytes / m.network_bytes_per_s;
  }

 private:
  const Planner& self() const { return static_cast<const Planner&>(*this); }

  // Of a command: the sender's proxy takes it, and the receiver's its arrival. What plays a network takes it once.
  double handling_s() const { return (x_.machine.ranks_per_gpu > 1 ? 1 : 2) * x_.machine.command_s; }

  std::vector<Plan> forms_of(const Plan& shared, int32_t sms) const {
    const ReductionCut cut = cut_of(p_, shared.choice);
    const int64_t numbers = std::max<int64_t>(1, cut.chunk_rows * cut.chunk_cols);
    const int64_t large_teams = std::clamp(sms / kTeamWarps, 1, 256);
    const int64_t most_teams = std::max(large_teams, std::min<int64_t>({int64_t{2} * sms, cut.chunks(), 256}));
    const int64_t teams = std::clamp(int64_t{2} * sms * kWarpNumbers / numbers, large_teams, most_teams);
    std::vector<Plan> plans;
    for (const FormNumbers& form : Plan::kForms) {
      if (sms < std::max(kRankWarps + 1, form.launch_ctas)) continue;
      Plan plan = shared;
      plan.tile_rows = form.work_rows();
      plan.tile_cols = form.work_cols();
      plan.choice.workers = sms / form.launch_ctas * form.launch_ctas / form.cluster_ctas();
      plan.choice.reduce_workers = static_cast<int32_t>(teams);
      plans.push_back(plan);
    }
    return plans;
  }
  double product_s(const Plan& plan, const ReductionCut& cut, int64_t k) const {
    return static_cast<double>(div_up(cut.chunks(), plan.choice.workers)) * chunk_s(plan, cut, k);
  }
  Cost cost_of(const Plan& plan, int64_t k) const {
    const ReductionCut cut = cut_of(p_, plan.choice);
    const auto s = Tables(p_, plan.choice, x_).schedule(1);
    const double around_s = begin_cost_s(s.frame, x_.machine) + end_cost_s(s.frame, x_.machine);
    if (cut.chunks() == 0) return {.total_s = around_s};
    const double compute_s = product_s(plan, cut, k), communication_s = self().moving_s(plan.choice, cut);
    const double both_s = plan.choice.is_fused ? std::max(compute_s, communication_s) : compute_s + communication_s;
    return {.compute_s = compute_s,
            .communication_s = communication_s,
            .total_s = around_s + both_s + self().last_chunk_s(plan.choice, cut)};
  }
};

}  // namespace tilewire
