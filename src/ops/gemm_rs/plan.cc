#include "ops/gemm_rs/plan.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "executor/planner.h"
#include "ops/gemm_rs/layout.h"
#include "ops/gemm_rs/simulation.h"

namespace tilewire::gemm_rs {
namespace {

// Chunks that are tried: the smaller they are the earlier the first one leaves, the larger the fewer signals.
constexpr std::pair<int64_t, int64_t> kChunkSizes[] = {{16, 128}, {32, 256}, {64, 256}, {128, 256}, {256, 1024}};
constexpr int64_t kWindow = 16;  // where not every chunk can have a slot
// What the shared part is priced with in place of numbers that may differ between ranks. A chunk is also what a worker
// computes at a time, so its size is not for communication alone to say.
constexpr int64_t kPricedDepth = 1024;
constexpr int32_t kPricedWorkers = 8;

// See executor/planner.h.
class Planner {
 public:
  using Problem = gemm_rs::Problem;
  using Choice = PlanChoice;
  static constexpr const char* kName = kCallName;
  static constexpr const char* kSharedCost = "with K = 1024";
  static constexpr const char* kSharedAdvice = "raise TILEWIRE_MAX_CHUNKS_PER_SOURCE on all ranks";

  Planner(const Problem& problem, const PlanContext& context) : p_(problem), x_(context) {
    p_.validate();
    check_one_count_a_rank(kName, p_.rows.size(), x_);
  }

  const Problem& problem() const { return p_; }
  const PlanContext& context() const { return x_; }
  int64_t half_bytes(const PlanChoice& c) const { return gemm_rs::half_bytes(p_, c, x_); }
  std::string reason_against(const PlanChoice& c) const {
    if (!c.is_fused && c.window > 0) {
      return "is_fused = false and window > 0: chunks under a window cannot all be made before any is added up";
    }
    return reason_against_chunks(p_, c, x_);
  }

  // A slot for each chunk where the arena is large enough. As far as sizes differ once they are cut to the matrix; the
  // last one is the whole part of a rank, which is a choice where there are many ranks.
  std::vector<PlanChoice> shared_candidates() const {
    std::vector<std::pair<int64_t, int64_t>> sizes(std::begin(kChunkSizes), std::end(kChunkSizes));
    sizes.emplace_back(int64_t{1} << 40, int64_t{1} << 40);
    std::vector<PlanChoice> choices;
    for (const auto& [rows, cols] : sizes) {
      PlanChoice choice{.chunk_rows = rows, .chunk_cols = cols, .cursors = {}};
      const ReductionCut cut = cut_of(p_, choice);
      choice.chunk_rows = cut.chunk_rows;
      choice.chunk_cols = cut.chunk_cols;
      if (!reason_against_reserve(half_bytes(choice), x_).empty()) choice.window = kWindow;
      const bool is_known = std::any_of(choices.begin(), choices.end(),
                                        [&](const PlanChoice& c) { return shared_of(c) == shared_of(choice); });
      if (!is_known) choices.push_back(choice);
    }
    return choices;
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
    const double compute_s = compute_alone_s(choice), total_s = std::max(compute_s, walked_s(p_, choice, x_));
    return {.compute_s = compute_s, .communication_s = std::min(bare_s_, total_s), .total_s = total_s};
  }

 private:
  using Shared = std::tuple<int64_t, int64_t, int64_t>;
  static Shared shared_of(const PlanChoice& c) { return {c.chunk_rows, c.chunk_cols, c.window}; }

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
    return walked_s(priced, shared, x_);
  }

  double compute_alone_s(const PlanChoice& choice) const {
    const ScheduleTables tables(p_, choice, x_);
    const Schedule s = tables.schedule(1);
    double longest_s = 0;
    for (int32_t worker = 0; worker < s.workers; ++worker) {
      double alone_s = 0;
      ComputeWork w;
      for (ComputeRole role(s, worker); role.next(w);) {
        alone_s += x_.machine.step_s + RankModel::chunk_flops(s, w.chunk, p_.k) / x_.machine.worker_flops;
      }
      longest_s = std::max(longest_s, alone_s);
    }
    return longest_s;
  }

  const Problem& p_;
  const PlanContext& x_;
  double bare_s_ = -1;  // of the shared part that is priced; below 0: not yet known
};

}  // namespace

Plan make_plan(const Problem& problem, const PlanContext& context) { return best_plan(Planner(problem, context)); }

Plan check_plan(const PlanChoice& choice, const Problem& problem, const PlanContext& context) {
  return given_plan(Planner(problem, context), choice);
}

void check_choice(const PlanChoice& choice, const Problem& problem, const PlanContext& context) {
  check_given(Planner(problem, context), choice);
}

ScheduleTables::ScheduleTables(const Problem& problem, const PlanChoice& choice, const PlanContext& context)
    : map_(context.topology, context.me, cut_of(problem, choice)) {
  schedule_.frame = {.topology = context.topology, .arena = context.arena, .me = context.me};
  schedule_.map = map_.view();
  schedule_.buffers = buffers_of(problem, choice, context);
  schedule_.workers = choice.workers;
  schedule_.reduce_workers = choice.reduce_workers;
  schedule_.is_fused = choice.is_fused;
}

Schedule ScheduleTables::schedule(Epoch epoch) const {
  Schedule s = schedule_;
  s.frame.epoch = epoch;
  s.map = map_.view();
  return s;
}

}  // namespace tilewire::gemm_rs
