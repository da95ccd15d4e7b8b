#include "ops/attention/planner_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "ops/attention/model.h"
#include "planning/walked_cost.h"

namespace tilewire::attention {
namespace {

constexpr int64_t kTriedWindows[] = {16, 4, 2, 1};  // where not every head, or source, can have a slot
constexpr int64_t kGroupItems = 384;        // a tail of so many items is short beside them (docs/decisions/0053)
constexpr int64_t kWalkedPieces = 200'000;  // of work in all: each item comes to each source

int64_t most_of(const std::vector<int64_t>& rows) { return *std::max_element(rows.begin(), rows.end()); }

}  // namespace

std::string reason_against_choice_of(const Problem& p, const PlanChoice& c, const PlanContext& x) {
  if (c.chunk_rows % kKeyBlock != 0) {
    return fmt::format("chunk_rows = {}, must be a multiple of {}", c.chunk_rows, kKeyBlock);
  }
  const int64_t most_rows = most_of(p.kv_rows);
  if (std::string reason = reason_against_chunks(c.chunk_rows, most_rows, p.kv_row_bytes(), x); !reason.empty()) {
    return reason;
  }
  const int64_t chunks = checked_mul(p.pairs(), div_up(most_rows, c.chunk_rows)), room = x.arena.flags.max_chunks;
  if (chunks > room) {
    return fmt::format(
        "chunk_rows = {} cuts {} rows of {} heads of k and v into {} chunks, the flag area has room "
        "for {} a source",
        c.chunk_rows, most_rows, p.pairs(), chunks, room);
  }
  const CallLayout layout = layout_of(p, c, x);
  const bool has_window = layout.slots < layout.units;
  if (has_window && !c.is_fused) return "is_fused = false and a window: what is gathered first must all have slots";
  if (has_window && checked_mul(layout.units, c.workers) > room * x.topology.ranks) {
    return fmt::format("{} workers under a window of {} slots have {} words, the flag area has room for {}", c.workers,
                       layout.slots, checked_mul(layout.units, c.workers), room * x.topology.ranks);
  }
  if (has_window && layout.units > room) {
    return fmt::format("a window of {} slots for {} has a word for each, the flag area has room for {}", layout.slots,
                       layout.units, room);
  }
  return "";
}

int64_t window_that_fits(const Problem& p, PlanChoice choice, const PlanContext& x) {
  choice.window = 0;
  for (const int64_t window : kTriedWindows) {
    if (reason_against_reserve(layout_of(p, choice, x).end, x).empty()) break;
    choice.window = window;
  }
  return choice.window;
}

int32_t group_of(const Problem& p, const PlanChoice& c) {
  const int64_t items = std::max<int64_t>(1, p.heads_of_pair() * div_up(most_of(p.rows), c.tile_rows));
  const int64_t slots = c.is_step_major || c.window == 0 ? p.pairs() : c.window;
  return static_cast<int32_t>(std::clamp<int64_t>(div_up(kGroupItems, items), 1, std::max<int64_t>(1, slots)));
}

bool can_gather_first(const Problem& p, const PlanChoice& choice, const PlanContext& x) {
  const CallLayout layout = layout_of(p, choice, x);
  return layout.slots == layout.units && x.topology.ranks > 1;
}

double walk_s(const Problem& p, PlanChoice choice, const PlanContext& context, int64_t most_items) {
  const int64_t items = p.pairs() * p.heads_of_pair() * div_up(most_of(p.rows), choice.tile_rows);
  const int64_t ranks = context.topology.ranks;
  const int64_t most = std::clamp<int64_t>(kWalkedPieces / (ranks * ranks), 1, most_items);
  const int64_t factor = std::max<int64_t>(1, div_up(items, most));
  choice.tile_rows = static_cast<int32_t>(std::min<int64_t>(choice.tile_rows * factor, 1 << 20));
  return walked_s<RankModel>(p, choice, context);
}

}  // namespace tilewire::attention
