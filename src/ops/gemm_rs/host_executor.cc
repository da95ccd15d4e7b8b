#include "ops/gemm_rs/host_executor.h"

#include <cstring>
#include <span>

#include "executor/host_gemm.h"
#include "executor/host_number.h"
#include "executor/matrix_copy.h"
#include "executor/op_program.h"
#include "executor/slot_sum.h"

namespace tilewire::gemm_rs {
namespace {

// What the role bodies of one call share. Copied into each, so that the program may outlive the frame that made it.
struct Execution {
  const Schedule* schedule;
  const HostOperands* operands;
  const ChunkStandIn* stand_in;
};

TraceEvent event_of(const char* name, const Schedule& s, OwnedChunk c, int64_t bytes, TraceLink link) {
  return {.name = name, .work = s.map.global(c), .source = s.me().value, .bytes = bytes, .link = link};
}

// A partial sum, rounded into its slot at whoever takes it.
TraceEvent compute_chunk(RoleContext& context, const Execution& x, const ComputeWork& w, HostGemmScratch& scratch) {
  const Schedule& s = *x.schedule;
  const HostOperands& o = *x.operands;
  const RowRange rows = s.map.rows(w.chunk);
  const ColumnRange columns = s.map.columns(w.chunk);
  if (x.stand_in != nullptr) (*x.stand_in)(rows.rows(), columns.cols());
  const RowSegment segment{0, element_at(o.a, rows.begin, 0), o.a.row_stride * size_bytes(o.a.dtype)};
  HostGemmTile tile =
      weight_tile(o, {.weight = 0, .begin = columns.begin, .end = columns.end}, {&segment, 1}, rows.rows());
  if (x.stand_in != nullptr) tile.k = 0;
  tile.out = context.half_of(w.to) + s.partial_offset(s.me(), w.chunk);
  tile.out_pitch_bytes = Buffers::pitch_bytes(columns, s.buffers.partial_bytes);
  tile.out_type = o.wire.partial;
  host_gemm_tile(tile, scratch);
  // What it leaves elsewhere is part of the product: no bytes that could be hidden under it.
  return event_of("tile", s, w.chunk, 0, TraceLink::none);
}

// What one thread of a call does.
class RoleWorker {
 public:
  RoleWorker(RoleContext& context, Ring ring, const Execution& x) : hands_(context, ring), x_(x) {}

  TraceEvent operator()(const ComputeWork& w) { return compute_chunk(hands_.context(), x_, w, hands_.scratch()); }
  TraceEvent operator()(const ReduceWork& w);
  TraceEvent operator()(const SendWork& w);
  TraceEvent operator()(const FinishWork& w);
  TraceEvent operator()(const DrainWork&) { return {}; }

 private:
  const Schedule& schedule() const { return *x_.schedule; }
  // Where the own node's partial sums of a chunk lie, in rank order.
  void find_partials(OwnedChunk c);
  // Adds the node sums of a row of an own chunk, in node order.
  void add_nodes(OwnedChunk c, int64_t row);
  void add_epilogue(OwnedChunk c, int64_t row);
  SlotRows received(Node from, OwnedChunk c) {
    const Schedule& s = schedule();
    return {hands_.context().own_half() + s.received_offset(from, c),
            Buffers::pitch_bytes(s.map.columns(c), s.buffers.sum_bytes), x_.operands->wire.node_sum};
  }

  RoleHands hands_;
  Execution x_;
  SlotSum slots_;
  std::vector<SlotRows> partials_;
  std::vector<float> sum_, part_;
};

void RoleWorker::find_partials(OwnedChunk c) {
  const Schedule& s = schedule();
  const int64_t pitch_bytes = Buffers::pitch_bytes(s.map.columns(c), s.buffers.partial_bytes);
  partials_.clear();
  for (int32_t i = 0; i < s.width(); ++i) {
    partials_.push_back(
        {hands_.context().own_half() + s.partial_offset(s.source(i), c), pitch_bytes, x_.operands->wire.partial});
  }
  sum_.resize(static_cast<size_t>(s.map.columns(c).cols()));
  part_.resize(sum_.size());
}

TraceEvent RoleWorker::operator()(const ReduceWork& w) {
  const Schedule& s = schedule();
  const DataType type = x_.operands->wire.node_sum;
  find_partials(w.chunk);
  const int64_t row_bytes = static_cast<int64_t>(sum_.size()) * size_bytes(type);
  const int64_t pitch_bytes = Buffers::pitch_bytes(s.map.columns(w.chunk), s.buffers.sum_bytes);
  std::byte* to = hands_.context().own_half() + s.sent_offset(w.chunk);
  for (int64_t row = 0; row < s.map.rows(w.chunk).rows(); ++row, to += pitch_bytes) {
    slots_.add_up(partials_, row, sum_);
    from_fp32(sum_.data(), static_cast<int64_t>(sum_.size()), {to, type});
    std::memset(to + row_bytes, 0, static_cast<size_t>(pitch_bytes - row_bytes));  // no stale bytes travel
  }
  return event_of("sum", s, w.chunk, s.sum_bytes(w.chunk), TraceLink::copy);
}

TraceEvent RoleWorker::operator()(const SendWork& w) {
  if (w.command.kind == CommandKind::call_end) return hands_.give_end(w.command);
  hands_.give(w.command);
  if (w.command.kind == CommandKind::signal) return {.name = "slot free", .work = schedule().map.global(w.chunk)};
  return event_of("chunk", schedule(), w.chunk, schedule().sum_bytes(w.chunk), TraceLink::network);
}

void RoleWorker::add_nodes(OwnedChunk c, int64_t row) {
  const Schedule& s = schedule();
  const int32_t nodes = s.topology().nodes;
  for (int32_t n = 0; n < nodes; ++n) {
    std::vector<float>& to = n == 0 ? sum_ : part_;
    if (Node{n} == s.here()) {
      slots_.add_up(partials_, row, to);
      // As the owner on another node would see it.
      if (nodes > 1) slots_.round(x_.operands->wire.node_sum, to);
    } else {
      const SlotRows rows = received(Node{n}, c);
      slots_.add_up({&rows, 1}, row, to);
    }
    if (n > 0) slots_.add(part_.data(), sum_);
  }
}

void RoleWorker::add_epilogue(OwnedChunk c, int64_t row) {
  const HostOperands& o = *x_.operands;
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

TraceEvent RoleWorker::operator()(const FinishWork& w) {
  const Schedule& s = schedule();
  const MatrixView& out = x_.operands->out;
  const ColumnRange columns = s.map.columns(w.chunk);
  const RowRange rows = s.map.rows(w.chunk);
  const int64_t first = rows.begin - s.map.blocks.row_begin[s.me().value];
  find_partials(w.chunk);
  for (int64_t row = 0; row < rows.rows(); ++row) {
    add_nodes(w.chunk, row);
    add_epilogue(w.chunk, first + row);
    from_fp32(sum_.data(), columns.cols(), {element_at(out, first + row, columns.begin), out.dtype});
  }
  const int64_t bytes = rows.rows() * columns.cols() * size_bytes(out.dtype);
  return event_of("result", s, w.chunk, bytes, TraceLink::copy);
}

}  // namespace

Call::Program host_program(const Schedule& schedule, Cursors cursors, const HostOperands& operands,
                           const ChunkStandIn* stand_in) {
  const Execution x{&schedule, &operands, stand_in};
  return make_program(schedule, cursors, kFamilyNames, [x](RoleContext& c, Ring r) { return RoleWorker(c, r, x); });
}

}  // namespace tilewire::gemm_rs
