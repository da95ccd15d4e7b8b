#include "ops/ag_gemm/host_executor.h"

#include <algorithm>

#include "arithmetic/host_gemm.h"
#include "executor/matrix_copy.h"
#include "executor/op_program.h"

namespace tilewire::ag_gemm {
namespace {

// What the role bodies of one call share. Copied into each, so that the program may outlive the frame that made it.
struct Execution {
  const Schedule* schedule;
  const HostOperands* operands;
  const TileStandIn* stand_in;

  int64_t row_bytes() const { return operands->a.cols * size_bytes(operands->a.dtype); }
  int64_t own_row(int64_t global_row) const { return global_row - schedule->chunks.row_begin[schedule->me().value]; }
};

// push and forward: a chunk into the gathered buffer of a rank of this node.
TraceEvent copy_chunk(RoleContext& context, const Execution& x, const CopyWork& w) {
  const Buffers& buffers = x.schedule->buffers;
  const int64_t offset = buffers.gathered_offset(w.rows.begin);
  if (w.from_input) {
    pack_rows(x.operands->a, x.own_row(w.rows.begin), w.rows.rows(),
              {.to = context.half_of(w.to) + offset, .pitch_bytes = buffers.pitch_bytes});
  } else {
    context.copy_to(w.to, offset, x.schedule->bytes(w.chunk));
  }
  return chunk_event(w.chunk, x.schedule->bytes(w.chunk), w.to == x.schedule->me() ? TraceLink::copy : TraceLink::node);
}

// Where the rows of a tile lie: the gathered buffer, and the caller's memory for own rows that were not copied.
std::vector<RowSegment> row_segments(const RoleContext& context, const Execution& x, RowRange rows) {
  const Schedule& s = *x.schedule;
  const auto gathered = [&](int64_t row) {
    return RowSegment{row - rows.begin, context.own_half() + s.buffers.gathered_offset(row), s.buffers.pitch_bytes};
  };
  const int64_t own_begin = s.chunks.row_begin[s.me().value], own_end = s.chunks.row_begin[s.me().value + 1];
  if (!s.own_in_user || own_end <= rows.begin || own_begin >= rows.end) return {gathered(rows.begin)};
  std::vector<RowSegment> segments;
  if (rows.begin < own_begin) segments.push_back(gathered(rows.begin));
  const int64_t first_own = std::max(rows.begin, own_begin);
  segments.push_back(
      {first_own - rows.begin, element_at(x.operands->a, x.own_row(first_own), 0), s.buffers.pitch_bytes});
  if (own_end < rows.end) segments.push_back(gathered(own_end));
  return segments;
}

TraceEvent compute_tile(RoleContext& context, const Execution& x, const TileWork& w, HostGemmScratch& scratch) {
  const HostOperands& o = *x.operands;
  const std::vector<RowSegment> segments = row_segments(context, x, w.rows);
  if (w.columns.is_gather_copy) {
    copy_segments(segments, w.rows.rows(), o.gathered, w.rows.begin);
    return {.name = "gathered", .work = w.tile, .bytes = w.rows.rows() * x.row_bytes(), .link = TraceLink::copy};
  }
  if (x.stand_in != nullptr) {
    (*x.stand_in)(w);
  } else {
    HostGemmTile tile = weight_tile(o, w.columns, segments, w.rows.rows());
    add_bias(o, w.columns, tile);
    write_into(o.out[static_cast<size_t>(w.columns.weight)], w.rows.begin, w.columns.begin, tile);
    host_gemm_tile(tile, scratch);
  }
  // The rank whose rows the tile begins with.
  const int32_t source =
      x.schedule->chunks.total_chunks() == 0 ? -1 : x.schedule->chunks.of_row(w.rows.begin).source.value;
  return {.name = "tile", .work = w.tile, .source = source};
}

// What one thread of a call does.
class RoleWorker {
 public:
  RoleWorker(RoleContext& context, Ring ring, const Execution& x) : hands_(context, ring), x_(x) {}

  TraceEvent operator()(const CopyWork& w) { return copy_chunk(hands_.context(), x_, w); }
  TraceEvent operator()(const SendWork& w) {
    if (w.command.kind == CommandKind::call_end) return hands_.give_end(w.command);
    hands_.give(w.command);
    return chunk_event(w.chunk, x_.schedule->bytes(w.chunk), TraceLink::network);
  }
  TraceEvent operator()(const TileWork& w) { return compute_tile(hands_.context(), x_, w, hands_.scratch()); }
  TraceEvent operator()(const DrainWork&) { return {}; }

 private:
  RoleHands hands_;
  Execution x_;
};

}  // namespace

std::vector<MatrixView> HostOperands::written() const {
  std::vector<MatrixView> written = out;
  written.push_back(gathered);
  return written;
}

Call::Program host_program(const Schedule& schedule, Cursors cursors, const HostOperands& operands,
                           const TileStandIn* stand_in) {
  const Execution x{&schedule, &operands, stand_in};
  Call::Program program =
      make_program(schedule, cursors, kFamilyNames, [x](RoleContext& c, Ring r) { return RoleWorker(c, r, x); });
  program.sends_from_user = schedule.own_in_user;
  return program;
}

}  // namespace tilewire::ag_gemm
