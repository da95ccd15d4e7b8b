#include "ops/gemm_ar/layout.h"

#include <algorithm>

#include "base/bytes.h"

namespace tilewire::gemm_ar {
namespace {

// Of a call in one shot: every rank has a slot of each source of its node and of each other node for every chunk.
ReductionNeeds one_shot_needs(const Topology& t, const ReductionCut& cut) {
  const int64_t chunks = cut.chunks();
  ReductionNeeds most{.received_slots = checked_mul(chunks, t.nodes - 1), .rail_chunks = chunks};
  for (int32_t n = 0; n < t.nodes; ++n) {
    const int32_t width = t.ranks_on(Node{n});
    most.partial_slots = std::max(most.partial_slots, checked_mul(chunks, width));
    if (t.nodes > 1) most.sent_slots = std::max(most.sent_slots, div_up(chunks, width));
  }
  return most;
}

}  // namespace

ReductionCut cut_of(const Problem& p, const PlanChoice& choice) {
  return {.rows = {p.m},
          .cols = p.n,
          .chunk_rows = std::min(choice.chunk_rows, std::max<int64_t>(1, p.m)),
          .chunk_cols = std::min(choice.chunk_cols, std::max<int64_t>(1, p.n)),
          .window = choice.window,
          .deals_chunks = true};
}

ReductionNeeds needs_of(const ReductionCut& cut, const PlanChoice& choice, const PlanContext& x) {
  return choice.is_one_shot ? one_shot_needs(x.topology, cut) : reduction_needs(x.topology, cut);
}

DataType largest_sent(const Problem& p) {
  const DataType sum = wire_types(p.wire_dtype).node_sum;
  return size_bytes(p.out_dtype) > size_bytes(sum) ? p.out_dtype : sum;
}

CallLayout layout_of(const Problem& p, const PlanChoice& choice, const PlanContext& x) {
  const ReductionCut cut = cut_of(p, choice);
  CallLayout layout{reduction_layout(cut, needs_of(cut, choice, x), wire_types(p.wire_dtype), x)};
  layout.results_begin = layout.finished_begin = layout.end;
  layout.result_slot_bytes = slot_bytes(cut, p.out_dtype);
  if (choice.is_one_shot) return layout;
  const int64_t chunks = cut.chunks(), most_own = div_up(chunks, x.topology.ranks);
  if (choice.window > 0) layout.result_slots = std::min(choice.window, most_own);
  const int64_t slots = choice.window > 0 ? checked_mul(layout.result_slots, x.topology.ranks) : chunks;
  layout.finished_begin = checked_add(layout.results_begin, checked_mul(slots, layout.result_slot_bytes));
  layout.end = layout.finished_begin;
  if (choice.window > 0) layout.end = checked_add(layout.end, checked_mul(most_own, layout.result_slot_bytes));
  return layout;
}

}  // namespace tilewire::gemm_ar
