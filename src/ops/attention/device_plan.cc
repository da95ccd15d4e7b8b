#include "ops/attention/device_plan.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/bytes.h"
#include "operands/matrix_checks.h"
#include "ops/attention/cost.h"
#include "ops/attention/model.h"
#include "ops/attention/planner_parts.h"
#include "planning/op_simulation.h"
#include "planning/planner.h"

namespace tilewire::attention {
namespace {

constexpr int64_t kTriedChunkRows[] = {128, 256, 512, 1024, 2048, int64_t{1} << 40};
// Walked are so few workers, each as fast as its share of the CTAs, and so many items of a rank: the last items of a call
// are not seen there, but by compute_s().
constexpr int32_t kWalkedWorkers = 8;
constexpr int64_t kWalkedItems = 128;
// What a CTA takes, measured on an H200 (docs/decisions/0088): for a step of keys in each form, and beside the steps of an
// item.
constexpr double kWideStepS = 1.82e-6, kNarrowStepS = 1.24e-6, kItemS = 2e-6;

// What a thread copies beside the computing warps of its CTA: its pieces wait behind their keys. A chunk is the work of one.
constexpr double kCopierBytesPerS = 1.5e9;
// What a CTA takes for a chunk of another rank that an item reads: its loader looks whether the chunk is here, which the
// steps of the chunk before hide in part (docs/decisions/0099). Counted in so many tiles of a rank at most.
constexpr double kLookS = 1.5e-6;
constexpr int64_t kCountedTiles = 16;

double step_s(const AttentionForm& form) { return form.head_dim == 128 ? kWideStepS : kNarrowStepS; }

// The rate of a worker at which the simulator's items take as long as those of a CTA.
double cta_flops(const AttentionForm& form) {
  const double scores = static_cast<double>(form.rows) * form.step;
  const double flops = scores * (4.0 * form.head_dim + kScoreFlops) + kOperandFlops * form.step * 2 * form.head_dim;
  return flops / step_s(form);
}

int32_t agreed_sms(const PlanContext& x) { return kH200Workers / std::max(1, x.machine.ranks_per_gpu); }

// Items are taken when a CTA is free, the longest first: the last one is half over when the others have ended.
double compute_s(const Schedule& s, const AttentionForm& form) {
  double all_s = 0, longest_s = 0;
  for (int32_t tile = 0; tile < s.tiles; ++tile) {
    double scores = 0;
    for (int32_t block = 0; block < s.blocks.total_chunks(); ++block) {
      if (s.is_looked_at(tile, s.blocks.at(block))) scores += scores_of(s, tile, block);
    }
    const double steps = scores / static_cast<double>(s.tile_range(tile).rows()) / form.step;
    const double item_s = kItemS + steps * step_s(form);
    all_s += item_s;
    longest_s = std::max(longest_s, item_s);
  }
  all_s *= static_cast<double>(s.pairs) * s.heads;
  if (s.pairs == 0 || s.heads == 0) return 0;
  return std::max(longest_s, all_s / s.workers + longest_s / 2);
}

}  // namespace

const AttentionForm& fused_form(int64_t head_dim) {
  for (const AttentionForm& form : kFusedForms) {
    if (form.head_dim == head_dim) return form;
  }
  refuse_argument(kCallName, "no kernel has heads of this size", std::to_string(head_dim), "64 or 128");
}

// See planning/planner.h.
class FusedPlanner : PricedProblem, public PlannerOf<FusedPlan> {
 public:
  static constexpr const char* kName = kCallName;
  static constexpr const char* kSharedCost = "predicted for equal parts of the GPU";

  FusedPlanner(const Problem& problem, const PlanContext& context)
      : PricedProblem(problem), PlannerOf(priced, context), form_(fused_form(problem.head_dim)) {
    check_one_count_a_rank(kName, p_.rows.size(), x_);
    check_one_count_a_rank(kName, p_.kv_rows.size(), x_);
  }

  int64_t half_bytes(const FusedPlan& plan) const { return layout_of(p_, plan.choice, x_).end; }

  std::string reason_against(const FusedPlan& plan) const {
    const PlanChoice& c = plan.choice;
    if (c.is_step_major) return "is_step_major = true, a kernel takes head after head";
    if (c.tile_rows != form_.rows) {
      return fmt::format("tile_rows = {}, no kernel has such tiles: {}", c.tile_rows, form_.rows);
    }
    if (c.chunk_rows % form_.step != 0) {
      return fmt::format("chunk_rows = {}, must be a multiple of {}", c.chunk_rows, form_.step);
    }
    if (c.workers < kLeastCtas) return fmt::format("workers = {}, a kernel has {} or more", c.workers, kLeastCtas);
    return reason_against_choice_of(p_, c, x_);
  }

  std::vector<FusedPlan> shared_candidates() const {
    const int64_t most_rows = std::max<int64_t>(1, *std::max_element(p_.kv_rows.begin(), p_.kv_rows.end()));
    std::vector<FusedPlan> plans;
    for (const int64_t rows : kTriedChunkRows) {
      FusedPlan plan;
      plan.choice.tile_rows = form_.rows;
      plan.choice.chunk_rows = round_up(std::min(rows, most_rows), std::lcm(int64_t{form_.step}, kKeyBlock));
      plan.choice.window = window_that_fits(p_, plan.choice, x_);
      if (plans.empty() || plans.back().agreed() != plan.agreed()) plans.push_back(plan);
    }
    return plans;
  }
  double shared_cost_s(const FusedPlan& plan) const {
    PlanChoice priced = plan.choice;
    priced.workers = agreed_sms(x_);
    priced.group_pairs = group_of(p_, priced);
    return walked_s(priced, cta_flops(form_)) + looks_s(priced);
  }

  // Of equals the first is taken.
  std::vector<FusedPlan> candidates(const FusedPlan& shared) const {
    if (x_.workers < kLeastCtas) {
      throw Error(ErrorKind::resource, {.what = "no SM is left to compute with",
                                        .where = kName,
                                        .values = fmt::format("{} SMs", x_.workers),
                                        .limit = fmt::format("{} or more", kLeastCtas),
                                        .advice = "give the rank more SMs: TILEWIRE_SMS"});
    }
    std::vector<FusedPlan> plans;
    FusedPlan plan = shared;
    plan.choice.workers = x_.workers;
    plan.choice.group_pairs = group_of(p_, plan.choice);
    plans.push_back(plan);
    plan.choice.group_pairs = 1;
    if (plans.front().choice.group_pairs > 1) plans.push_back(plan);
    plan.choice.is_fused = false;
    plan.choice.group_pairs = plans.front().choice.group_pairs;
    if (can_gather_first(p_, plan.choice, x_)) plans.push_back(plan);
    return plans;
  }
  Cost predict(const FusedPlan& plan) {
    if (bare_s_ < 0) bare_s_ = walked_s(plan.choice, 1e30);
    const ScheduleTables tables(p_, plan.choice, x_);
    const double alone_s = compute_s(tables.schedule(1), form_);
    const double total_s = std::max(alone_s, walked_s(plan.choice, cta_flops(form_)) + looks_s(plan.choice));
    return {.compute_s = alone_s, .communication_s = std::min(bare_s_, total_s), .total_s = total_s};
  }

 private:
  double walked_s(PlanChoice choice, double flops) const {
    PlanContext x = x_;
    x.machine.copy_bytes_per_s = choice.workers * kCopierBytesPerS;
    x.machine.node_bytes_per_s = std::min(x.machine.node_bytes_per_s, x.machine.copy_bytes_per_s);
    x.machine.worker_flops = flops * choice.workers / kWalkedWorkers;
    choice.workers = kWalkedWorkers;
    return walk_s(p_, choice, x, kWalkedItems) + first_chunk_s(choice);
  }
  int64_t most_keys() const { return *std::max_element(p_.kv_rows.begin(), p_.kv_rows.end()); }
  // The walk has one copier for all of them. So long the first chunk of another rank is on its way yet, by those that copy
  // it one after the other, when the own keys are done with.
  double first_chunk_s(const PlanChoice& choice) const {
    const bool has_network = x_.topology.nodes > 1, has_peers = x_.topology.ranks > x_.topology.nodes;
    const int64_t rows = std::min(choice.chunk_rows, most_keys());
    const double copy_s = static_cast<double>(rows * p_.kv_row_bytes()) / kCopierBytesPerS;
    const double own_s = static_cast<double>(most_keys()) / form_.step * step_s(form_);
    return std::max(0.0, (int{has_network} + int{has_peers}) * copy_s - own_s);
  }
  // Of the rank whose items read most chunks of others: by agreed values but for the workers.
  double looks_s(PlanChoice choice) const {
    const int64_t most_rows = *std::max_element(p_.rows.begin(), p_.rows.end());
    const int64_t factor = std::max<int64_t>(1, div_up(div_up(most_rows, choice.tile_rows), kCountedTiles));
    choice.tile_rows = static_cast<int32_t>(std::min<int64_t>(choice.tile_rows * factor, 1 << 20));
    int64_t most_looks = 0;
    PlanContext x = x_;
    for (x.me = Rank{0}; x.me.value < x.topology.ranks; ++x.me.value) {
      const ScheduleTables tables(p_, choice, x);
      const Schedule s = tables.schedule(1);
      int64_t looks = 0;
      for (int32_t tile = 0; tile < s.tiles; ++tile) {
        for (Rank source{0}; source.value < s.ranks(); ++source.value) {
          if (source != s.me()) looks += s.looked_at(tile, source).count;
        }
      }
      most_looks = std::max(most_looks, looks);
    }
    return static_cast<double>(most_looks * factor * p_.pairs() * p_.heads_of_pair()) / choice.workers * kLookS;
  }

  const AttentionForm& form_;
  double bare_s_ = -1;  // below 0: not yet known
};

TimedReport simulate(const Problem& problem, const FusedPlan& plan, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace) {
  PlanContext ctas = context;
  ctas.machine.worker_flops = cta_flops(fused_form(problem.head_dim));
  return simulate(problem, plan.choice, topology, ctas, keeps_trace);
}

}  // namespace tilewire::attention

template struct tilewire::PlansOf<tilewire::attention::FusedPlan>;
