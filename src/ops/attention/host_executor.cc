#include "ops/attention/host_executor.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "executor/matrix_copy.h"
#include "executor/op_program.h"
#include "ops/attention/host_attention.h"
#include "ops/attention/plan.h"

namespace tilewire::attention {
namespace {

// What the role bodies of one call share. Copied into each, so that the program may outlive the frame that made it.
struct Execution {
  const Schedule* schedule;
  const HostOperands* operands;
  const ItemStandIn* stand_in;

  int64_t batch_of(int32_t pair) const { return pair / operands->k.heads; }
  int64_t kv_head_of(int32_t pair) const { return pair % operands->k.heads; }
  int64_t q_head_of(const ItemWork& w) const { return kv_head_of(w.pair) * schedule->heads + w.head; }
};

// An own chunk: its keys, and behind them its values.
TraceEvent load_chunk(RoleContext& context, const Execution& x, ChunkRef c) {
  const Schedule& s = *x.schedule;
  const RowRange rows = s.rows_of(c);
  const int32_t pair = s.pair_of(c);
  std::byte* to = context.own_half() + s.offset(s.me(), c);
  for (const HeadsView* from : {&x.operands->k, &x.operands->v}) {
    const int64_t row_bytes = s.buffers.row_bytes / 2;
    pack_rows(head_of(*from, x.batch_of(pair), x.kv_head_of(pair)), rows.begin, rows.rows(),
              {.to = to, .pitch_bytes = row_bytes});
    to += rows.rows() * row_bytes;
  }
  return chunk_event(c, s.bytes(c), TraceLink::copy);
}

// push and forward: a chunk from here to a rank of this node.
TraceEvent copy_chunk(RoleContext& context, const Execution& x, const CopyWork& w) {
  const Schedule& s = *x.schedule;
  if (w.is_end) return {};
  std::memcpy(context.half_of(w.to) + s.offset(w.to, w.chunk), context.own_half() + s.offset(s.me(), w.chunk),
              static_cast<size_t>(s.bytes(w.chunk)));
  return chunk_event(w.chunk, s.bytes(w.chunk), TraceLink::node);
}

// What one thread of a call does.
class RoleWorker {
 public:
  RoleWorker(RoleContext& context, Ring ring, const Execution& x) : hands_(context, ring), x_(x) {}

  TraceEvent operator()(const LoadWork& w) { return load_chunk(hands_.context(), x_, w.chunk); }
  TraceEvent operator()(const CopyWork& w) { return copy_chunk(hands_.context(), x_, w); }
  TraceEvent operator()(const SendWork& w) {
    if (w.command.kind == CommandKind::call_end) return hands_.give_end(w.command);
    hands_.give(w.command);
    if (w.is_word) return {};
    return chunk_event(w.chunk, x_.schedule->bytes(w.chunk), TraceLink::network);
  }
  TraceEvent operator()(const ItemWork& w) {
    if (w.is_end) return {};
    const TraceEvent event{.name = "tile", .work = w.item, .source = w.source.value};
    if (x_.stand_in != nullptr) {
      (*x_.stand_in)(w);
      return event;
    }
    HostSums sums = sums_of(w);
    if (w.is_first) sums.begin();
    if (w.is_first || x_.schedule->is_step_major) set_queries(w);
    for (int32_t i = 0; i < w.blocks.count; ++i) add_block(w, Chunk{w.blocks.first + i}, sums);
    if (w.is_last) finish(w, sums);
    return event;
  }
  TraceEvent operator()(const ReleaseWork&) { return {}; }
  TraceEvent operator()(const DrainWork&) { return {}; }

 private:
  HostAttention& attention() {
    if (!attention_) attention_.emplace(hands_.context().session().gemm_variant());
    return *attention_;
  }
  // In step-major order a worker comes back to an item when it has done others.
  HostSums sums_of(const ItemWork& w) {
    const Schedule& s = *x_.schedule;
    const int64_t head_dim = x_.operands->q.dim, size = HostSums::size(s.tile_rows, head_dim);
    if (!s.is_step_major) own_sums_.resize(static_cast<size_t>(size));
    float* memory = s.is_step_major ? x_.operands->sums + w.item * size : own_sums_.data();
    return {s.tile_range(w.tile).rows(), head_dim, memory};
  }
  void set_queries(const ItemWork& w) {
    const HeadsView& q = x_.operands->q;
    const MatrixView head = head_of(q, x_.batch_of(w.pair), x_.q_head_of(w));
    const RowRange rows = x_.schedule->tile_range(w.tile);
    attention().set_queries(rows.rows(), q.dim, [&](int64_t row) {
      return ConstElements{element_at(head, rows.begin + row, 0), q.dtype, q.dim_stride};
    });
  }
  void add_block(const ItemWork& w, Chunk block, HostSums& sums) {
    const Schedule& s = *x_.schedule;
    if (!s.is_looked_at(w.tile, {w.source, block})) return;
    const ChunkRef c{w.source, Chunk{w.pair * s.blocks_of(w.source) + block.value}};
    const RowRange rows = s.rows_of(c), queries = s.tile_range(w.tile);
    const int64_t row_bytes = s.buffers.row_bytes / 2;
    const std::byte* keys = hands_.context().own_half() + s.offset(s.me(), c);
    const int64_t* positions = s.key_positions + s.blocks.row_begin[w.source.value] + rows.begin;
    for (int64_t first = 0; first < rows.rows(); first += kKeyBlock) {
      const int64_t count = std::min(kKeyBlock, rows.rows() - first);
      attention().add(sums,
                      {.keys = keys + first * row_bytes,
                       .values = keys + (rows.rows() + first) * row_bytes,
                       .dtype = x_.operands->k.dtype,
                       .positions = {positions + first, static_cast<size_t>(count)}},
                      {s.query_spans + queries.begin, static_cast<size_t>(queries.rows())}, x_.operands->scale);
    }
  }
  void finish(const ItemWork& w, const HostSums& sums) {
    const Schedule& s = *x_.schedule;
    const RowRange rows = s.tile_range(w.tile);
    const int64_t batch = x_.batch_of(w.pair), head = x_.q_head_of(w), dim = x_.operands->q.dim;
    const MatrixView &out = x_.operands->out, &lse = x_.operands->lse;
    for (int64_t row = 0; row < rows.rows(); ++row) {
      const float log_sum = sums.finish_row(
          row, scratch_, {element_at(out, batch * s.rows + rows.begin + row, head * dim), out.dtype, 1});
      std::memcpy(element_at(lse, batch * x_.operands->q.heads + head, rows.begin + row), &log_sum, sizeof(log_sum));
    }
  }

  RoleHands hands_;
  Execution x_;
  std::optional<HostAttention> attention_;
  std::vector<float> own_sums_;  // of the item at hand
  std::vector<float> scratch_;
};

}  // namespace

MatrixView head_of(const HeadsView& t, int64_t batch, int64_t head) {
  const int64_t first = batch * t.batch_stride + head * t.head_stride;
  auto* data = static_cast<std::byte*>(t.data);
  return {.data = data == nullptr ? nullptr : data + first * size_bytes(t.dtype),
          .rows = t.rows,
          .cols = t.dim,
          .row_stride = t.row_stride,
          .col_stride = t.dim_stride,
          .dtype = t.dtype};
}

int64_t kept_sums(const Schedule& s, int64_t head_dim) {
  if (!s.is_step_major) return 0;
  const int64_t items = int64_t{s.pairs} * s.heads * s.tiles;
  return checked_mul(items, HostSums::size(s.tile_rows, head_dim));
}

Call::Program host_program(const Schedule& schedule, Cursors cursors, const HostOperands& operands,
                           const ItemStandIn* stand_in) {
  const Execution x{&schedule, &operands, stand_in};
  return make_program(schedule, cursors, kFamilyNames, [x](RoleContext& c, Ring r) { return RoleWorker(c, r, x); });
}

}  // namespace tilewire::attention
