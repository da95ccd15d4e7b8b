#include "reduction/reduction_layout.h"

#include <fmt/format.h>

#include "base/bytes.h"

namespace tilewire {

int64_t slot_bytes(const ReductionCut& cut, DataType type) {
  const int64_t pitch = checked_round_up(checked_mul(cut.chunk_cols, size_bytes(type)), kWireUnitBytes);
  return checked_mul(cut.chunk_rows, pitch);
}

ReductionLayout reduction_layout(const ReductionCut& cut, const ReductionNeeds& needs, const WireTypes& wire,
                                 const PlanContext& x) {
  ReductionLayout layout;
  ReductionBuffers& b = layout.buffers;
  b.arena = x.arena;
  b.partial_bytes = static_cast<int32_t>(size_bytes(wire.partial));
  b.sum_bytes = static_cast<int32_t>(size_bytes(wire.node_sum));
  b.partial_slot_bytes = slot_bytes(cut, wire.partial);
  b.sum_slot_bytes = slot_bytes(cut, wire.node_sum);
  b.sent_begin = checked_add(x.arena.data_offset(), checked_mul(needs.partial_slots, b.partial_slot_bytes));
  b.received_begin = checked_add(b.sent_begin, checked_mul(needs.sent_slots, b.sum_slot_bytes));
  layout.end = checked_add(b.received_begin, checked_mul(needs.received_slots, b.sum_slot_bytes));
  return layout;
}

std::string reason_against_chunks(const ReductionCut& cut, const ReductionNeeds& needs, DataType sent,
                                  const PlanContext& x) {
  if (needs.rail_chunks > x.arena.flags.max_chunks) {
    return fmt::format("chunks of {} x {} make {} of them at one rank, the flag area has room for {} a source",
                       cut.chunk_rows, cut.chunk_cols, needs.rail_chunks, x.arena.flags.max_chunks);
  }
  const int64_t bytes = slot_bytes(cut, sent);
  if (bytes > CommandLimits::kChunkBytes) {
    return fmt::format("a chunk of {} bytes, a command moves at most {}", bytes, CommandLimits::kChunkBytes);
  }
  return "";
}

}  // namespace tilewire
