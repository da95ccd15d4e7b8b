#include "ops/gemm_ar/plan.h"

#include <algorithm>
#include <vector>

#include "ops/gemm_ar/layout.h"
#include "ops/gemm_ar/model.h"
#include "planning/planner.h"
#include "reduction/reduction_planner.h"

namespace tilewire::gemm_ar {
namespace {

// How far behind the node sums results are sent, as far as it is tried.
constexpr int32_t kTriedBehind[] = {1, 2, 4};

// What the shared part is priced with in place of each rank's workers: SMs of a GPU, or threads of a CPU rank, as one of
// them is fast.
int32_t priced_workers(const Machine& machine) { return machine.worker_flops >= 1e12 ? kH200Workers : kPricedWorkers; }
// Who add up for so many who multiply.
int32_t reduce_workers_of(int32_t workers) { return std::max(1, workers / 8); }

}  // namespace

// See planning/planner.h.
class Planner : public PlannerOf<PlanChoice> {
 public:
  static constexpr const char* kName = kCallName;
  static constexpr const char* kSharedCost = "with K = 1024 and with K = 0 together";

  Planner(const Problem& problem, const PlanContext& context) : PlannerOf(problem, context) {}

  int64_t half_bytes(const PlanChoice& c) const { return layout_of(p_, c, x_).end; }
  std::string reason_against(const PlanChoice& c) const {
    if (!c.is_fused && c.window > 0) return kUnfusedUnderWindow;
    if (c.is_one_shot && c.window > 0) return kOneShotUnderWindow;
    const ReductionCut cut = cut_of(p_, c);
    return reason_against_chunks(cut, needs_of(cut, c, x_), largest_sent(p_), x_);
  }

  // Of forms that cost the same the first one is taken: two shots need less memory.
  std::vector<PlanChoice> shared_candidates() const {
    std::vector<PlanChoice> all;
    for (const bool is_one_shot : {false, true}) {
      const std::vector<PlanChoice> of_form = tried_chunks(
          PlanChoice{.is_one_shot = is_one_shot, .cursors = {}}, [&](const PlanChoice& c) { return cut_of(p_, c); },
          [&](const PlanChoice& c) { return reason_against_reserve(half_bytes(c), x_).empty(); });
      all.insert(all.end(), of_form.begin(), of_form.end());
    }
    return all;
  }
  // Communication alone counts too: the forms differ in what can be hidden under products, of which there may be few.
  double shared_cost_s(const PlanChoice& c) const { return fused_s(c, kPricedDepth) + fused_s(c, 0); }

  std::vector<PlanChoice> candidates(const PlanChoice& shared) const {
    PlanChoice choice = shared;
    choice.workers = x_.workers;
    std::vector<PlanChoice> choices;
    for (const int32_t reduce_workers : {1, reduce_workers_of(x_.workers)}) {
      if (!choices.empty() && reduce_workers == choice.reduce_workers) break;
      choice.reduce_workers = reduce_workers;
      for (const int32_t behind : kTriedBehind) {
        choice.gather_behind = behind;
        choices.push_back(choice);
        if (shared.is_one_shot || x_.topology.nodes == 1) break;  // it is never looked at
      }
    }
    choice.gather_behind = PlanChoice{}.gather_behind;
    choice.is_fused = false;
    if (choice.window == 0) choices.push_back(choice);
    return choices;
  }
  // Communication alone: when the last rank ends a call in which there is nothing to multiply.
  Cost predict(const PlanChoice& choice) {
    if (bare_s_ < 0) bare_s_ = fused_s(choice, 0);
    return walked_cost<RankModel>(p_, choice, x_, compute_s(choice), bare_s_);
  }

 private:
  double compute_s(const PlanChoice& choice) const {
    const ScheduleTables tables(p_, choice, x_);
    const Schedule s = tables.schedule(1);
    return choice.is_one_shot ? longest_product_s<one_shot::ComputeRole>(s, p_.k, x_.machine)
                              : longest_product_s<PartialSumRole>(s, p_.k, x_.machine);
  }

  // By the shared part of the choice and agreed values alone.
  double fused_s(const PlanChoice& c, int64_t k) const {
    Problem priced = p_;
    priced.k = k;
    const PlanChoice shared{.is_one_shot = c.is_one_shot,
                            .chunk_rows = c.chunk_rows,
                            .chunk_cols = c.chunk_cols,
                            .window = c.window,
                            .workers = priced_workers(x_.machine),
                            .reduce_workers = reduce_workers_of(priced_workers(x_.machine)),
                            .cursors = {}};
    return walked_s<RankModel>(priced, shared, x_);
  }

  double bare_s_ = -1;  // of the shared part that is priced; below 0: not yet known
};

ScheduleTables::ScheduleTables(const Problem& problem, const PlanChoice& choice, const PlanContext& context)
    : ReductionScheduleTables(cut_of(problem, choice), layout_of(problem, choice, context), choice, context) {
  const CallLayout layout = layout_of(problem, choice, context);
  schedule_.is_one_shot = choice.is_one_shot;
  // Under a window a result goes before the word that its slot is free again.
  schedule_.gather_behind = choice.window > 0
                                ? static_cast<int32_t>(std::min<int64_t>(choice.gather_behind, choice.window - 1))
                                : choice.gather_behind;
  schedule_.finishes_ahead = schedule_.gather_behind;
  schedule_.result_bytes = static_cast<int32_t>(size_bytes(problem.out_dtype));
  schedule_.result_slot_bytes = layout.result_slot_bytes;
  schedule_.results_begin = layout.results_begin;
  schedule_.finished_begin = layout.finished_begin;
  schedule_.result_slots = static_cast<int32_t>(layout.result_slots);
}

}  // namespace tilewire::gemm_ar

template struct tilewire::PlansOf<tilewire::gemm_ar::PlanChoice>;
