#include "ops/gemm_rs/plan.h"

#include <algorithm>

#include "ops/gemm_rs/layout.h"
#include "ops/gemm_rs/model.h"
#include "planning/planner.h"
#include "reduction/reduction_planner.h"

namespace tilewire::gemm_rs {

// See planning/planner.h.
class Planner : public PlannerOf<PlanChoice> {
 public:
  static constexpr const char* kName = kCallName;
  static constexpr const char* kSharedCost = "with K = 1024";

  Planner(const Problem& problem, const PlanContext& context) : PlannerOf(problem, context) {
    check_one_count_a_rank(kName, p_.rows.size(), x_);
  }

  int64_t half_bytes(const PlanChoice& c) const { return layout_of(p_, c, x_).end; }
  std::string reason_against(const PlanChoice& c) const {
    if (!c.is_fused && c.window > 0) return kUnfusedUnderWindow;
    const ReductionCut cut = cut_of(p_, c);
    return reason_against_chunks(cut, reduction_needs(x_.topology, cut), wire_types(p_.wire_dtype).node_sum, x_);
  }

  std::vector<PlanChoice> shared_candidates() const {
    return tried_chunks(
        PlanChoice{.cursors = {}}, [&](const PlanChoice& c) { return cut_of(p_, c); },
        [&](const PlanChoice& c) { return reason_against_reserve(half_bytes(c), x_).empty(); });
  }
  double shared_cost_s(const PlanChoice& c) const { return fused_s(c, kPricedDepth); }

  std::vector<PlanChoice> candidates(const PlanChoice& shared) const {
    PlanChoice choice = shared;
    choice.workers = x_.workers;
    std::vector<PlanChoice> choices = {choice};
    choice.is_fused = false;
    if (choice.window == 0) choices.push_back(choice);
    return choices;
  }
  // Communication alone: when the last rank ends a call in which there is nothing to multiply.
  Cost predict(const PlanChoice& choice) {
    if (bare_s_ < 0) bare_s_ = fused_s(choice, 0);
    const ScheduleTables tables(p_, choice, x_);
    const double compute_s = longest_product_s<ComputeRole>(tables.schedule(1), p_.k, x_.machine);
    return walked_cost<RankModel>(p_, choice, x_, compute_s, bare_s_);
  }

 private:
  // By the shared part of the choice and agreed values alone.
  double fused_s(const PlanChoice& c, int64_t k) const {
    Problem priced = p_;
    priced.k = k;
    priced.out_dtype = DataType::bf16;
    const PlanChoice shared{.chunk_rows = c.chunk_rows,
                            .chunk_cols = c.chunk_cols,
                            .window = c.window,
                            .workers = kPricedWorkers,
                            .cursors = {}};
    return walked_s<RankModel>(priced, shared, x_);
  }

  double bare_s_ = -1;  // of the shared part that is priced; below 0: not yet known
};

ScheduleTables::ScheduleTables(const Problem& problem, const PlanChoice& choice, const PlanContext& context)
    : ReductionScheduleTables(cut_of(problem, choice), layout_of(problem, choice, context), choice, context) {}

}  // namespace tilewire::gemm_rs

template struct tilewire::PlansOf<tilewire::gemm_rs::PlanChoice>;
