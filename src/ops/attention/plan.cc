#include "ops/attention/plan.h"

#include <algorithm>
#include <vector>

#include "base/bytes.h"
#include "ops/attention/cost.h"
#include "ops/attention/planner_parts.h"
#include "planning/planner.h"

namespace tilewire::attention {
namespace {

constexpr int64_t kTriedChunkRows[] = {64, 256, 1024, 4096, int64_t{1} << 40};
constexpr int64_t kTriedTileRows[] = {128, 64, 32};
// The shared part is priced with so many workers a rank in place of each rank's own.
constexpr int32_t kPricedWorkers = 8;
constexpr int64_t kWalkedItems = 512;  // a rank

}  // namespace

// See planning/planner.h.
class Planner : PricedProblem, public PlannerOf<PlanChoice> {
 public:
  static constexpr const char* kName = kCallName;
  static constexpr const char* kSharedCost = "with 8 workers a rank";

  Planner(const Problem& problem, const PlanContext& context) : PricedProblem(problem), PlannerOf(priced, context) {
    check_one_count_a_rank(kName, p_.rows.size(), x_);
    check_one_count_a_rank(kName, p_.kv_rows.size(), x_);
  }

  int64_t half_bytes(const PlanChoice& c) const { return layout_of(p_, c, x_).end; }

  std::string reason_against(const PlanChoice& c) const { return reason_against_choice_of(p_, c, x_); }

  std::vector<PlanChoice> shared_candidates() const {
    const int64_t most_rows = std::max<int64_t>(1, *std::max_element(p_.kv_rows.begin(), p_.kv_rows.end()));
    std::vector<PlanChoice> choices;
    for (const bool is_step_major : {false, true}) {
      if (is_step_major && x_.topology.ranks == 1) break;
      for (const int64_t rows : kTriedChunkRows) {
        PlanChoice choice{.is_step_major = is_step_major, .cursors = {}};
        choice.chunk_rows = std::min(rows, round_up(most_rows, kKeyBlock));
        choice.window = window_that_fits(p_, choice, x_);
        if (choices.empty() || choices.back().agreed() != choice.agreed()) choices.push_back(choice);
      }
    }
    return choices;
  }
  double shared_cost_s(const PlanChoice& c) const {
    PlanChoice priced = c;
    priced.workers = kPricedWorkers;
    priced.tile_rows = static_cast<int32_t>(kTriedTileRows[0]);
    priced.group_pairs = group_of(p_, priced);
    return walk_s(p_, priced, x_, kWalkedItems);
  }

  std::vector<PlanChoice> candidates(const PlanChoice& shared) const {
    std::vector<PlanChoice> choices;
    PlanChoice choice = shared;
    choice.workers = x_.workers;
    for (const int64_t rows : kTriedTileRows) {
      choice.tile_rows = static_cast<int32_t>(rows);
      choice.group_pairs = 1;
      choices.push_back(choice);
      choice.group_pairs = group_of(p_, choice);
      if (!choice.is_step_major && choice.group_pairs > 1) choices.push_back(choice);
    }
    choice = choices.front();
    choice.is_fused = false;
    if (can_gather_first(p_, choice, x_)) choices.push_back(choice);
    return choices;
  }
  // Communication alone: with arithmetic that takes no time.
  Cost predict(const PlanChoice& choice) {
    if (bare_s_ < 0) {
      PlanContext bare = x_;
      bare.machine.worker_flops = 1e30;
      bare_s_ = walk_s(p_, choice, bare, kWalkedItems);
    }
    const ScheduleTables tables(p_, choice, x_);
    const double compute_s = longest_compute_s(tables.schedule(1), x_.machine);
    const double total_s = std::max(compute_s, walk_s(p_, choice, x_, kWalkedItems));
    return {.compute_s = compute_s, .communication_s = std::min(bare_s_, total_s), .total_s = total_s};
  }

 private:
  double bare_s_ = -1;  // below 0: not yet known
};

}  // namespace tilewire::attention

template struct tilewire::PlansOf<tilewire::attention::PlanChoice>;
