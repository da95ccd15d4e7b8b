#include "ops/attention/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/bytes.h"
#include "ops/attention/cost.h"
#include "ops/attention/model.h"
#include "planning/planner.h"
#include "planning/walked_cost.h"

namespace tilewire::attention {
namespace {

constexpr int64_t kTriedChunkRows[] = {64, 256, 1024, 4096, int64_t{1} << 40};
constexpr int64_t kTriedWindows[] = {16, 4, 2, 1};  // where not every head, or source, can have a slot
constexpr int64_t kTriedTileRows[] = {128, 64, 32};
constexpr int64_t kGroupItems = 384;  // a tail of so many items is short beside them (docs/decisions/0053)
// The shared part is priced with so many workers a rank in place of each rank's own.
constexpr int32_t kPricedWorkers = 8;
// A walk of more items a rank, or more pieces of work in all (each item comes to each source), takes tiles that are larger
// in proportion: planning is to take less than the call.
constexpr int64_t kWalkedItems = 512, kWalkedPieces = 200'000;

}  // namespace

// What the planner refers to. Whatever is wrong with all of the problem is found here.
struct PricedProblem {
  Problem priced;
  explicit PricedProblem(const Problem& problem) : priced((problem.validate(), problem.priced())) {}
  PricedProblem(const PricedProblem&) = delete;
  PricedProblem& operator=(const PricedProblem&) = delete;
};

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

  std::string reason_against(const PlanChoice& c) const {
    if (c.chunk_rows % kKeyBlock != 0) {
      return fmt::format("chunk_rows = {}, must be a multiple of {}", c.chunk_rows, kKeyBlock);
    }
    const int64_t most_rows = *std::max_element(p_.kv_rows.begin(), p_.kv_rows.end());
    if (std::string reason = reason_against_chunks(c.chunk_rows, most_rows, p_.kv_row_bytes(), x_); !reason.empty()) {
      return reason;
    }
    const int64_t chunks = checked_mul(p_.pairs(), div_up(most_rows, c.chunk_rows)), room = x_.arena.flags.max_chunks;
    if (chunks > room) {
      return fmt::format(
          "chunk_rows = {} cuts {} rows of {} heads of k and v into {} chunks, the flag area has room "
          "for {} a source",
          c.chunk_rows, most_rows, p_.pairs(), chunks, room);
    }
    const CallLayout layout = layout_of(p_, c, x_);
    const bool has_window = layout.slots < layout.units;
    if (has_window && !c.is_fused) return "is_fused = false and a window: what is gathered first must all have slots";
    if (has_window && checked_mul(layout.units, c.workers) > room * x_.topology.ranks) {
      return fmt::format("{} workers under a window of {} slots have {} words, the flag area has room for {}",
                         c.workers, layout.slots, checked_mul(layout.units, c.workers), room * x_.topology.ranks);
    }
    if (has_window && layout.units > room) {
      return fmt::format("a window of {} slots for {} has a word for each, the flag area has room for {}", layout.slots,
                         layout.units, room);
    }
    return "";
  }

  std::vector<PlanChoice> shared_candidates() const {
    const int64_t most_rows = std::max<int64_t>(1, *std::max_element(p_.kv_rows.begin(), p_.kv_rows.end()));
    std::vector<PlanChoice> choices;
    for (const bool is_step_major : {false, true}) {
      if (is_step_major && x_.topology.ranks == 1) break;
      for (const int64_t rows : kTriedChunkRows) {
        PlanChoice choice{.is_step_major = is_step_major, .cursors = {}};
        choice.chunk_rows = std::min(rows, round_up(most_rows, kKeyBlock));
        for (const int64_t window : kTriedWindows) {
          if (reason_against_reserve(half_bytes(choice), x_).empty()) break;
          choice.window = window;
        }
        if (choices.empty() || choices.back().agreed() != choice.agreed()) choices.push_back(choice);
      }
    }
    return choices;
  }
  double shared_cost_s(const PlanChoice& c) const {
    PlanChoice priced = c;
    priced.workers = kPricedWorkers;
    priced.tile_rows = static_cast<int32_t>(kTriedTileRows[0]);
    priced.group_pairs = group_of(priced);
    return walk_s(priced, x_);
  }

  std::vector<PlanChoice> candidates(const PlanChoice& shared) const {
    std::vector<PlanChoice> choices;
    PlanChoice choice = shared;
    choice.workers = x_.workers;
    for (const int64_t rows : kTriedTileRows) {
      choice.tile_rows = static_cast<int32_t>(rows);
      choice.group_pairs = 1;
      choices.push_back(choice);
      choice.group_pairs = group_of(choice);
      if (!choice.is_step_major && choice.group_pairs > 1) choices.push_back(choice);
    }
    choice = choices.front();
    choice.is_fused = false;
    const CallLayout layout = layout_of(p_, choice, x_);
    if (layout.slots == layout.units && x_.topology.ranks > 1) choices.push_back(choice);
    return choices;
  }
  // Communication alone: with arithmetic that takes no time.
  Cost predict(const PlanChoice& choice) {
    if (bare_s_ < 0) {
      PlanContext bare = x_;
      bare.machine.worker_flops = 1e30;
      bare_s_ = walk_s(choice, bare);
    }
    const ScheduleTables tables(p_, choice, x_);
    const double compute_s = longest_compute_s(tables.schedule(1), x_.machine);
    const double total_s = std::max(compute_s, walk_s(choice, x_));
    return {.compute_s = compute_s, .communication_s = std::min(bare_s_, total_s), .total_s = total_s};
  }

 private:
  int64_t most_tiles(int64_t tile_rows) const {
    return div_up(*std::max_element(p_.rows.begin(), p_.rows.end()), tile_rows);
  }
  // By agreed values alone, for all workers of a rank together.
  int32_t group_of(const PlanChoice& c) const {
    const int64_t items = std::max<int64_t>(1, p_.heads_of_pair() * most_tiles(c.tile_rows));
    const int64_t slots = c.is_step_major || c.window == 0 ? p_.pairs() : c.window;
    return static_cast<int32_t>(std::clamp<int64_t>(div_up(kGroupItems, items), 1, std::max<int64_t>(1, slots)));
  }
  double walk_s(PlanChoice choice, const PlanContext& context) const {
    const int64_t items = p_.pairs() * p_.heads_of_pair() * most_tiles(choice.tile_rows);
    const int64_t ranks = x_.topology.ranks;
    const int64_t most = std::clamp<int64_t>(kWalkedPieces / (ranks * ranks), 1, kWalkedItems);
    const int64_t factor = std::max<int64_t>(1, div_up(items, most));
    choice.tile_rows = static_cast<int32_t>(std::min<int64_t>(choice.tile_rows * factor, 1 << 20));
    return walked_s<RankModel>(p_, choice, context);
  }

  double bare_s_ = -1;  // below 0: not yet known
};

}  // namespace tilewire::attention

template struct tilewire::PlansOf<tilewire::attention::PlanChoice>;
