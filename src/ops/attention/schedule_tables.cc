#include "ops/attention/schedule_tables.h"

#include <algorithm>

#include "base/bytes.h"
#include "operands/weighted_matmul.h"
#include "ops/attention/plan.h"

namespace tilewire::attention {
namespace {

int64_t slot_rows(const Problem& p, const PlanChoice& choice) {
  if (choice.is_step_major) {
    return checked_mul(*std::max_element(p.kv_rows.begin(), p.kv_rows.end()), p.pairs());
  }
  return p.total_kv_rows() - *std::min_element(p.kv_rows.begin(), p.kv_rows.end());
}

}  // namespace

CallLayout layout_of(const Problem& p, const PlanChoice& choice, const PlanContext& x) {
  CallLayout layout;
  const int64_t most_own = checked_mul(*std::max_element(p.kv_rows.begin(), p.kv_rows.end()), p.pairs());
  layout.units = choice.is_step_major ? x.topology.ranks - 1 : narrow<int32_t>(p.pairs());
  layout.slots = choice.window == 0 ? layout.units : std::min<int64_t>(choice.window, layout.units);
  layout.slot_bytes = checked_mul(slot_rows(p, choice), p.kv_row_bytes());
  layout.received_begin = checked_add(x.arena.data_offset(), checked_mul(most_own, p.kv_row_bytes()));
  layout.end = checked_add(layout.received_begin, checked_mul(layout.slots, layout.slot_bytes));
  return layout;
}

ScheduleTables::ScheduleTables(const Problem& problem, const PlanChoice& choice, const PlanContext& context)
    : blocks_(problem.kv_rows, choice.chunk_rows, problem.pairs() > 0) {
  const CallLayout layout = layout_of(problem, choice, context);
  Schedule& s = schedule_;
  s.frame = {.topology = context.topology, .arena = context.arena, .me = context.me};
  s.blocks = blocks_.view();
  s.buffers = {.arena = context.arena,
               .row_bytes = problem.kv_row_bytes(),
               .received_begin = layout.received_begin,
               .slot_bytes = layout.slot_bytes};
  s.pairs = static_cast<int32_t>(problem.pairs());
  s.is_step_major = choice.is_step_major;
  s.window = static_cast<int32_t>(std::max<int64_t>(1, layout.slots));
  s.rows = problem.rows[static_cast<size_t>(context.me.value)];
  s.tile_rows = choice.tile_rows;
  s.tiles = narrow<int32_t>(div_up(s.rows, choice.tile_rows));
  s.heads = static_cast<int32_t>(problem.heads_of_pair());
  s.group_pairs = static_cast<int32_t>(std::min<int64_t>(choice.group_pairs, s.window));
  s.workers = choice.workers;
  s.is_fused = choice.is_fused;
  if (problem.knows_positions()) sight_.settle(problem, s);
}

Schedule ScheduleTables::schedule(Epoch epoch) const {
  Schedule s = schedule_;
  s.frame.epoch = epoch;
  s.blocks = blocks_.view();
  sight_.point(s);
  return s;
}

Schedule ScheduleTables::schedule(const Problem& problem, SightTables& sight) const {
  Schedule s = schedule_;
  s.blocks = blocks_.view();
  sight.settle(problem, s);
  return s;
}

}  // namespace tilewire::attention
