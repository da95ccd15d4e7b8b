// What the roles of a matrix that is summed over ranks (schedule/reduction_roles.h) do with memory on a CPU rank.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "arithmetic/host_gemm.h"
#include "arithmetic/host_number.h"
#include "arithmetic/slot_sum.h"
#include "executor/matrix_copy.h"
#include "executor/op_program.h"
#include "reduction/reduction_operands.h"
#include "schedule/reduction_roles.h"

namespace tilewire {

// What the role bodies of one call share. Copied into each, so that the program may outlive the frame that made it.
template <class Schedule>
struct ReductionExecution {
  const Schedule* schedule;
  const ReductionOperands* operands;
  const ChunkStandIn* stand_in;
};

// What one thread of a call does. Schedule derives from ReductionSchedule; where slots lie is asked of it, so it may
// have them elsewhere.
template <class Schedule>
class ReductionWorker {
 public:
  ReductionWorker(RoleContext& context, Ring ring, const ReductionExecution<Schedule>& x)
      : hands_(context, ring), x_(x) {}

  TraceEvent operator()(const PartialSumWork& w) {
    const Schedule& s = schedule();
    multiply(w.chunk, context().half_of(s.taker(w.chunk.owner)) + s.partial_offset(s.me(), w.chunk));
    return tile_event(w.chunk);
  }
  TraceEvent operator()(const NodeSumWork& w) {
    add_up_node(w.chunk);
    return event_of("sum", w.chunk, schedule().sum_bytes(w.chunk), TraceLink::copy);
  }
  TraceEvent operator()(const SumSendWork& w) {
    if (w.command.kind == CommandKind::call_end) return hands_.give_end(w.command);
    hands_.give(w.command);
    if (w.command.kind == CommandKind::signal) return {.name = "slot free", .work = schedule().map.global(w.chunk)};
    return event_of("chunk", w.chunk, schedule().sum_bytes(w.chunk), TraceLink::network);
  }
  TraceEvent operator()(const ReductionDrainWork&) { return {}; }

 protected:
  const Schedule& schedule() const { return *x_.schedule; }
  const ReductionOperands& operands() const { return *x_.operands; }
  RoleContext& context() { return hands_.context(); }
  RoleHands& hands() { return hands_; }

  TraceEvent event_of(const char* name, OwnedChunk c, int64_t bytes, TraceLink link) const {
    const Schedule& s = schedule();
    return {.name = name, .work = s.map.global(c), .source = s.me().value, .bytes = bytes, .link = link};
  }
  // What compute leaves elsewhere is part of the product: no bytes that could be hidden under it.
  TraceEvent tile_event(OwnedChunk c) const { return event_of("tile", c, 0, TraceLink::none); }

  // The own partial sum, rounded into a slot.
  void multiply(OwnedChunk c, std::byte* slot);
  // The own node's sum, rounded into the slot that is sent.
  void add_up_node(OwnedChunk c);
  // The result of a chunk, row by row in fp32: give(row of the chunk, values). `first_row`: of the caller's residual.
  template <class GiveRow>
  void finish(OwnedChunk c, int64_t first_row, const GiveRow& give);

 private:
  // Where the own node's partial sums of a chunk lie, in rank order.
  void find_partials(OwnedChunk c);
  // Adds the node sums of a row, in node order.
  void add_nodes(OwnedChunk c, int64_t row);
  void add_epilogue(OwnedChunk c, int64_t row);
  SlotRows received(Node from, OwnedChunk c) {
    const Schedule& s = schedule();
    return {context().own_half() + s.received_offset(from, c),
            ReductionBuffers::pitch_bytes(s.map.columns(c), s.buffers.sum_bytes), operands().wire.node_sum};
  }

  RoleHands hands_;
  ReductionExecution<Schedule> x_;
  SlotSum slots_;
  std::vector<SlotRows> partials_;
  std::vector<float> sum_, part_;
};

template <class Schedule>
void ReductionWorker<Schedule>::multiply(OwnedChunk c, std::byte* slot) {
  const ReductionOperands& o = operands();
  const RowRange rows = schedule().map.rows(c);
  const ColumnRange columns = schedule().map.columns(c);
  if (x_.stand_in != nullptr) (*x_.stand_in)(rows.rows(), columns.cols());
  const RowSegment segment{0, element_at(o.a, rows.begin, 0), o.a.row_stride * size_bytes(o.a.dtype)};
  HostGemmTile tile =
      weight_tile(o, {.weight = 0, .begin = columns.begin, .end = columns.end}, {&segment, 1}, rows.rows());
  if (x_.stand_in != nullptr) tile.k = 0;
  tile.out = slot;
  tile.out_pitch_bytes = ReductionBuffers::pitch_bytes(columns, schedule().buffers.partial_bytes);
  tile.out_type = o.wire.partial;
  host_gemm_tile(tile, hands_.scratch());
}

template <class Schedule>
void ReductionWorker<Schedule>::find_partials(OwnedChunk c) {
  const Schedule& s = schedule();
  const int64_t pitch_bytes = ReductionBuffers::pitch_bytes(s.map.columns(c), s.buffers.partial_bytes);
  partials_.clear();
  for (int32_t i = 0; i < s.width(); ++i) {
    partials_.push_back(
        {context().own_half() + s.partial_offset(s.source(i), c), pitch_bytes, operands().wire.partial});
  }
  sum_.resize(static_cast<size_t>(s.map.columns(c).cols()));
  part_.resize(sum_.size());
}

template <class Schedule>
void ReductionWorker<Schedule>::add_up_node(OwnedChunk c) {
  const Schedule& s = schedule();
  const DataType type = operands().wire.node_sum;
  find_partials(c);
  const int64_t row_bytes = static_cast<int64_t>(sum_.size()) * size_bytes(type);
  const int64_t pitch_bytes = ReductionBuffers::pitch_bytes(s.map.columns(c), s.buffers.sum_bytes);
  std::byte* to = context().own_half() + s.sent_offset(c);
  for (int64_t row = 0; row < s.map.rows(c).rows(); ++row, to += pitch_bytes) {
    slots_.add_up(partials_, row, sum_);
    from_fp32(sum_.data(), static_cast<int64_t>(sum_.size()), {to, type});
    std::memset(to + row_bytes, 0, static_cast<size_t>(pitch_bytes - row_bytes));  // no stale bytes travel
  }
}

template <class Schedule>
void ReductionWorker<Schedule>::add_nodes(OwnedChunk c, int64_t row) {
  const Schedule& s = schedule();
  const int32_t nodes = s.topology().nodes;
  for (int32_t n = 0; n < nodes; ++n) {
    std::vector<float>& to = n == 0 ? sum_ : part_;
    if (Node{n} == s.here()) {
      slots_.add_up(partials_, row, to);
      // As a rank of another node would see it.
      if (nodes > 1) slots_.round(operands().wire.node_sum, to);
    } else {
      const SlotRows rows = received(Node{n}, c);
      slots_.add_up({&rows, 1}, row, to);
    }
    if (n > 0) slots_.add(part_.data(), sum_);
  }
}

template <class Schedule>
void ReductionWorker<Schedule>::add_epilogue(OwnedChunk c, int64_t row) {
  const ReductionOperands& o = operands();
  const ColumnRange columns = schedule().map.columns(c);
  const void* bias = o.bias.empty() ? nullptr : o.bias[0];
  if (bias != nullptr) {
    const auto* from = static_cast<const std::byte*>(bias) + columns.begin * size_bytes(o.bias_dtype);
    to_fp32({from, o.bias_dtype}, columns.cols(), part_.data());
    slots_.add(part_.data(), sum_);
  }
  if (o.residual) {
    to_fp32({element_at(*o.residual, row, columns.begin), o.residual->dtype, o.residual->col_stride}, columns.cols(),
            part_.data());
    slots_.add(part_.data(), sum_);
  }
}

template <class Schedule>
template <class GiveRow>
void ReductionWorker<Schedule>::finish(OwnedChunk c, int64_t first_row, const GiveRow& give) {
  find_partials(c);
  const int64_t rows = schedule().map.rows(c).rows();
  for (int64_t row = 0; row < rows; ++row) {
    add_nodes(c, row);
    add_epilogue(c, first_row + row);
    give(row, std::span<const float>(sum_));
  }
}

}  // namespace tilewire
