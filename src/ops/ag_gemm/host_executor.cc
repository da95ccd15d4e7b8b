#include "ops/ag_gemm/host_executor.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "executor/host_gemm.h"
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

// Rows of the caller's shard to their place in a gathered buffer. The bytes between a row's end and the pitch are
// zeros, so that no stale bytes travel.
void copy_from_input(const Execution& x, RowRange rows, std::byte* half) {
  const int64_t pitch = x.schedule->buffers.pitch_bytes;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    std::byte* to = half + x.schedule->buffers.gathered_offset(row);
    copy_row(x.operands->a, x.own_row(row), to);
    std::memset(to + x.row_bytes(), 0, pitch - x.row_bytes());
  }
}

TraceEvent chunk_event(const Execution& x, ChunkRef chunk, TraceLink link) {
  return {.name = "chunk",
          .work = chunk.chunk.value,
          .source = chunk.source.value,
          .bytes = x.schedule->bytes(chunk),
          .link = link};
}

// push and forward: a chunk into the gathered buffer of a rank of this node.
TraceEvent copy_chunk(RoleContext& context, const Execution& x, const CopyWork& w) {
  if (w.from_input) {
    copy_from_input(x, w.rows, context.half_of(w.to));
  } else {
    const int64_t offset = x.schedule->buffers.gathered_offset(w.rows.begin);
    std::memcpy(context.half_of(w.to) + offset, context.own_half() + offset, x.schedule->bytes(w.chunk));
  }
  return chunk_event(x, w.chunk, w.to == x.schedule->me() ? TraceLink::copy : TraceLink::node);
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

void copy_gathered(const Execution& x, const TileWork& w, const std::vector<RowSegment>& segments) {
  const MatrixView& to = x.operands->gathered;
  for (size_t i = 0; i < segments.size(); ++i) {
    const int64_t end = i + 1 < segments.size() ? segments[i + 1].first_row : w.rows.rows();
    for (int64_t r = segments[i].first_row; r < end; ++r) {
      std::memcpy(
          element_at(to, w.rows.begin + r, 0),
          static_cast<const std::byte*>(segments[i].base) + (r - segments[i].first_row) * segments[i].pitch_bytes,
          x.row_bytes());
    }
  }
}

TraceEvent compute_tile(RoleContext& context, const Execution& x, const TileWork& w, HostGemmScratch& scratch) {
  const HostOperands& o = *x.operands;
  const std::vector<RowSegment> segments = row_segments(context, x, w.rows);
  if (w.columns.is_gather_copy) {
    copy_gathered(x, w, segments);
    return {.name = "gathered", .work = w.tile, .bytes = w.rows.rows() * x.row_bytes(), .link = TraceLink::copy};
  }
  const int32_t index = w.columns.weight;
  const MatrixView &b = o.b[index], &out = o.out[index];
  HostGemmTile tile{.rows = w.rows.rows(),
                    .cols = w.columns.end - w.columns.begin,
                    .k = o.a.cols,
                    .a = segments,
                    .a_type = o.a.dtype,
                    .b = element_at(b, 0, w.columns.begin),
                    .b_stride_k = b.row_stride,
                    .b_stride_n = b.col_stride,
                    .b_type = b.dtype};
  if (o.bias[index] != nullptr) {
    tile.bias = static_cast<const std::byte*>(o.bias[index]) + w.columns.begin * size_bytes(o.bias_dtype);
    tile.bias_type = o.bias_dtype;
  }
  tile.out = element_at(out, w.rows.begin, w.columns.begin);
  tile.out_pitch_bytes = out.row_stride * size_bytes(out.dtype);
  tile.out_type = out.dtype;
  if (x.stand_in != nullptr) {
    (*x.stand_in)(w);
  } else {
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
  RoleWorker(RoleContext& context, const Execution& x, Ring ring) : context_(context), x_(x), ring_(ring) {}

  TraceEvent operator()(const CopyWork& w) { return copy_chunk(context_, x_, w); }
  TraceEvent operator()(const SendWork& w) {
    context_.post(ring_, w.command);
    if (w.command.kind == CommandKind::call_end) return {.name = "call end"};
    return chunk_event(x_, w.chunk, TraceLink::network);
  }
  TraceEvent operator()(const TileWork& w) {
    if (!scratch_) scratch_.emplace(context_.session().gemm_variant());
    return compute_tile(context_, x_, w, *scratch_);
  }
  TraceEvent operator()(const DrainWork&) { return {}; }

 private:
  RoleContext& context_;
  Execution x_;
  Ring ring_;  // of a role that has one
  std::optional<HostGemmScratch> scratch_;
};

}  // namespace

Call::Program host_program(const Schedule& schedule, Cursors cursors, const HostOperands& operands,
                           const TileStandIn* stand_in) {
  const Execution x{&schedule, &operands, stand_in};
  Call::Program program;
  program.sends_from_user = schedule.own_in_user;
  std::copy(std::begin(kFamilyNames), std::end(kFamilyNames), program.family_names);
  for_each_role(schedule, cursors, [&](const AgentPlace& place, const auto& role) {
    const Ring ring{place.ring};
    add_role(program, place, role, [x, ring](RoleContext& context) { return RoleWorker(context, x, ring); });
  });
  return program;
}

}  // namespace tilewire::ag_gemm
