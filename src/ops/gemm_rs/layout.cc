#include "ops/gemm_rs/layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"

namespace tilewire::gemm_rs {
namespace {

int64_t most_rows(const Problem& p) { return std::max<int64_t>(1, *std::max_element(p.rows.begin(), p.rows.end())); }

int64_t slot_bytes(const ReductionCut& cut, DataType type) {
  const int64_t pitch = checked_round_up(checked_mul(cut.chunk_cols, size_bytes(type)), kWireUnitBytes);
  return checked_mul(cut.chunk_rows, pitch);
}

struct Areas {
  Buffers buffers;
  int64_t end = 0;
};

Areas areas_of(const Problem& p, const PlanChoice& choice, const PlanContext& x) {
  const ReductionCut cut = cut_of(p, choice);
  const ReductionNeeds needs = reduction_needs(x.topology, cut);
  const WireTypes wire = wire_types(p.wire_dtype);
  Areas areas;
  Buffers& b = areas.buffers;
  b.arena = x.arena;
  b.partial_bytes = static_cast<int32_t>(size_bytes(wire.partial));
  b.sum_bytes = static_cast<int32_t>(size_bytes(wire.node_sum));
  b.partial_slot_bytes = slot_bytes(cut, wire.partial);
  b.sum_slot_bytes = slot_bytes(cut, wire.node_sum);
  b.sent_begin = checked_add(x.arena.data_offset(), checked_mul(needs.partial_slots, b.partial_slot_bytes));
  b.received_begin = checked_add(b.sent_begin, checked_mul(needs.sent_slots, b.sum_slot_bytes));
  areas.end = checked_add(b.received_begin, checked_mul(needs.received_slots, b.sum_slot_bytes));
  return areas;
}

}  // namespace

ReductionCut cut_of(const Problem& p, const PlanChoice& choice) {
  return {.rows = p.rows,
          .cols = p.n,
          .chunk_rows = std::min(choice.chunk_rows, most_rows(p)),
          .chunk_cols = std::min(choice.chunk_cols, std::max<int64_t>(1, p.n)),
          .window = choice.window};
}

Buffers buffers_of(const Problem& p, const PlanChoice& choice, const PlanContext& x) {
  return areas_of(p, choice, x).buffers;
}

int64_t half_bytes(const Problem& p, const PlanChoice& choice, const PlanContext& x) {
  return areas_of(p, choice, x).end;
}

std::string reason_against_chunks(const Problem& p, const PlanChoice& choice, const PlanContext& x) {
  const ReductionCut cut = cut_of(p, choice);
  const int64_t chunks = reduction_needs(x.topology, cut).rail_chunks;
  if (chunks > x.arena.flags.max_chunks) {
    return fmt::format(
        "chunks of {} x {} make {} of them for the owners of a rail, the flag area has room for {} a source",
        cut.chunk_rows, cut.chunk_cols, chunks, x.arena.flags.max_chunks);
  }
  const int64_t bytes = slot_bytes(cut, wire_types(p.wire_dtype).node_sum);
  if (bytes > CommandLimits::kChunkBytes) {
    return fmt::format("a chunk of {} bytes, a command moves at most {}", bytes, CommandLimits::kChunkBytes);
  }
  return "";
}

}  // namespace tilewire::gemm_rs
