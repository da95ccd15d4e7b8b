#include "ops/moe_dispatch/host_executor.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <cstring>

#include "arithmetic/host_gemm.h"
#include "executor/matrix_copy.h"
#include "executor/op_program.h"
#include "ops/moe_dispatch/row_moves.h"

namespace tilewire::moe_dispatch {
namespace {

// What the role bodies of one call share. Copied into each, so that the program may outlive the frame that made it.
struct Execution {
  const Schedule* schedule;
  const HostOperands* operands;
  const TileStandIn* stand_in;
};

// In front of a token in an outbox.
int32_t* token_number(std::byte* header) { return reinterpret_cast<int32_t*>(header); }
HeaderSlot* header_slots(std::byte* header) { return reinterpret_cast<HeaderSlot*>(header + sizeof(int32_t)); }

class RoleWorker {
 public:
  RoleWorker(RoleContext& context, Ring ring, const Execution& x) : hands_(context, ring), x_(x), s_(*x.schedule) {}

  // ---- counts
  TraceEvent operator()(const CountWork& w) {
    const int32_t rounds = s_.rounds_of_tokens(s_.tokens);
    if (w.to != s_.me()) return give_record(s_.me(), w.to, s_.record_bytes(rounds));
    auto* record = reinterpret_cast<int32_t*>(own_half() + s_.buffers.record_offset(s_.me()));
    const auto words = static_cast<size_t>(s_.record_bytes(rounds) / int64_t{sizeof(int32_t)});
    const auto nodes = static_cast<size_t>(s_.topology().nodes);
    count_routes(s_, x_.operands->routes, {s_.routing->node_seen, nodes}, {record, words});
    if (!s_.counts_only) list_routes(s_, x_.operands->routes, {record, words});
    return {.name = "count"};
  }
  TraceEvent operator()(const RouteWork&) {
    route(s_, x_.operands->most_rows, own_half() + s_.buffers.record_offset(Rank{0}));
    check_counted();
    return {.name = "route"};
  }

  // ---- rows
  TraceEvent operator()(const PushWork& w) {
    if (w.is_gate) return {};
    const int32_t rows = rows_of(s_, w);
    for (int32_t i = 0; i < rows; ++i) {
      const RowMove move = row_of(s_, w, i);
      place_row(w.round, move, [&](std::byte* to) { pack_token(move.origin.token, to); });
    }
    return {.name = "rows",
            .work = w.round,
            .source = s_.me().value,
            .bytes = rows * s_.buffers.row_pitch,
            .link = w.to == s_.me() ? TraceLink::copy : TraceLink::node};
  }
  TraceEvent operator()(const PackWork& w) {
    if (w.is_gate) return {};
    const int64_t header = header_bytes(s_.top_k);
    std::byte* to = own_half() + s_.outbox_offset(w.chunk.to, w.chunk.round, w.tokens.begin);
    for (int32_t i = 0; i < rows_of(s_, w); ++i, to += s_.buffers.token_pitch) {
      const int32_t token = token_of(s_, w, i);
      std::memset(to, 0, static_cast<size_t>(header));
      *token_number(to) = token;
      for (int32_t slot = 0; slot < s_.top_k; ++slot) header_slots(to)[slot] = header_of(s_, w.chunk.to, token, slot);
      pack_token(token, to + header);
    }
    return {.name = "tokens",
            .work = w.chunk.round,
            .source = s_.me().value,
            .bytes = w.tokens.rows() * s_.buffers.token_pitch,
            .link = TraceLink::copy};
  }
  TraceEvent operator()(const SendWork& w) {
    if (w.is_gate) return {};
    if (w.kind == SendWork::Kind::end) return hands_.give_end(w.command);
    hands_.give(w.command);
    if (w.kind == SendWork::Kind::free_slot) return {.name = "slot free", .work = w.chunk.round};
    return {.name = w.kind == SendWork::Kind::record ? "counts" : "tokens",
            .work = w.chunk.round,
            .source = s_.me().value,
            .bytes = int64_t{w.command.units} * kWireUnitBytes,
            .link = TraceLink::network};
  }
  TraceEvent operator()(const ForwardWork& w) {
    if (w.is_gate) return {};
    if (w.is_record) return give_record(w.source, w.to, s_.record_bytes(record_rounds(w.source)));
    const int64_t offset = s_.buffers.staging_offset(s_.entry(w.source, s_.me()), w.round, w.tokens.begin);
    std::byte* from = own_half() + offset;
    int64_t bytes = 0;
    for (int64_t i = 0; i < w.tokens.rows(); ++i, from += s_.buffers.token_pitch) {
      for (int32_t slot = 0; slot < s_.top_k; ++slot) {
        const HeaderSlot& at = header_slots(from)[slot];
        if (at.place < 0) continue;
        place_row(w.round, row_of(s_, w, {*token_number(from), slot}, at), [&](std::byte* to) {
          std::memcpy(to, from + header_bytes(s_.top_k), static_cast<size_t>(s_.buffers.row_pitch));
        });
        bytes += s_.buffers.row_pitch;
      }
    }
    return {.name = "rows", .work = w.round, .source = w.source.value, .bytes = bytes, .link = TraceLink::node};
  }

  // ---- products
  TraceEvent operator()(const TileWork& w) {
    if (w.is_gate || w.is_round_end) return {};
    const int64_t result_bytes = (w.columns.end - w.columns.begin) * size_bytes(x_.operands->out.dtype);
    if (!w.columns.is_gather_copy) multiply(w, result_bytes);
    for (int32_t p = w.first; p <= w.last; ++p) {
      const ResultRows results = results_of(s_, w, p);
      for (int64_t row = results.rows.begin; row < results.rows.end; ++row) {
        const int64_t result = results.result + row - results.rows.begin;
        if (w.columns.is_gather_copy) {
          copy_origin(w.round, row, s_.source_at[p], result);
        } else if (x_.stand_in == nullptr) {
          std::memcpy(element_at(x_.operands->out, result, w.columns.begin),
                      tile_.data() + (row - w.rows.begin) * result_bytes, static_cast<size_t>(result_bytes));
        }
      }
    }
    return {
        .name = w.columns.is_gather_copy ? "origins" : "tile", .work = w.tile, .source = s_.source_at[w.first].value};
  }
  TraceEvent operator()(const ReleaseWork&) { return {}; }

  // What no row is for: results are written in full. Where nothing has moved, whoever raises the error makes y NaN.
  TraceEvent operator()(const DrainWork& w) {
    if (!w.is_end) return {};
    const HostOperands& o = *x_.operands;
    if (s_.counts_only) {
      const Routing& r = *s_.routing;
      *o.counts = {{r.rows_of, r.rows_of + s_.ranks()}, {r.tokens_of, r.tokens_of + s_.ranks()}};
      return {};
    }
    const int64_t* offsets = s_.routing->offsets;
    std::copy_n(offsets, s_.own_experts() + 1, o.offsets);
    for (int64_t row = has_overflow(*s_.routing) ? 0 : offsets[s_.own_experts()]; row < o.out.rows; ++row) {
      std::fill_n(o.origins + 3 * row, 3, -1);
      if (o.out.cols > 0) {
        std::memset(element_at(o.out, row, 0), 0, static_cast<size_t>(o.out.cols * size_bytes(o.out.dtype)));
      }
    }
    return {};
  }

 private:
  std::byte* own_half() { return hands_.context().own_half(); }
  const int32_t* record_of(Rank r) {
    return reinterpret_cast<const int32_t*>(own_half() + s_.buffers.record_offset(r));
  }
  int32_t record_rounds(Rank r) { return s_.rounds_of_tokens(tokens_in(record_of(r))); }
  TraceEvent give_record(Rank of, Rank to, int64_t bytes) {
    hands_.context().copy_to(to, s_.buffers.record_offset(of), bytes);
    return {.name = "counts", .source = of.value, .bytes = bytes, .link = TraceLink::node};
  }
  // An earlier call has said how many rows there are, and the result is as large.
  void check_counted() const {
    const int64_t expected = x_.operands->counted_rows, rows = s_.routing->offsets[s_.own_experts()];
    if (expected < 0 || rows == expected || s_.counts_only) return;
    throw Error(ErrorKind::internal, {.what = "rows were counted twice and differ",
                                      .where = kCallName,
                                      .values = fmt::format("rank {}: {} rows", s_.me().value, rows),
                                      .limit = fmt::format("{} were counted before", expected)});
  }
  // Elements, and zeros up to the pitch, so that no stale bytes travel.
  void pack_token(int64_t token, std::byte* to) const {
    pack_rows(x_.operands->x, token, 1, {.to = to, .pitch_bytes = s_.buffers.row_pitch});
  }
  template <class Write>
  void place_row(int32_t round, const RowMove& move, const Write& write) {
    std::byte* half = hands_.context().half_of(move.to);
    write(half + s_.buffers.rows_offset(round, move.row));
    std::memcpy(half + s_.buffers.origins_offset(round, move.row), &move.origin, sizeof(move.origin));
  }
  void copy_origin(int32_t round, int64_t row, Rank source, int64_t result) {
    RowOrigin origin;
    std::memcpy(&origin, own_half() + s_.buffers.origins_offset(round, row), sizeof(origin));
    const int32_t numbers[] = {source.value, origin.token, origin.slot};
    std::copy_n(numbers, 3, x_.operands->origins + 3 * result);
  }
  // Into tile_: rows of a tile lie together, their results may not.
  void multiply(const TileWork& w, int64_t result_bytes) {
    if (x_.stand_in != nullptr) return (*x_.stand_in)(w);
    const HostOperands& o = *x_.operands;
    const MatrixView& b = o.w[static_cast<size_t>(w.expert)];
    tile_.resize(static_cast<size_t>(w.rows.rows() * result_bytes));
    const RowSegment rows{0, own_half() + s_.buffers.rows_offset(w.round, w.rows.begin), s_.buffers.row_pitch};
    host_gemm_tile({.rows = w.rows.rows(),
                    .cols = w.columns.end - w.columns.begin,
                    .k = o.x.cols,
                    .a = {&rows, 1},
                    .a_type = o.x.dtype,
                    .b = element_at(b, 0, w.columns.begin),
                    .b_stride_k = b.row_stride,
                    .b_stride_n = b.col_stride,
                    .b_type = b.dtype,
                    .out = tile_.data(),
                    .out_pitch_bytes = result_bytes,
                    .out_type = o.out.dtype},
                   hands_.scratch());
  }

  RoleHands hands_;
  Execution x_;
  const Schedule& s_;
  std::vector<std::byte> tile_;
};

}  // namespace

Call::Program host_program(const Schedule& schedule, Cursors cursors, const HostOperands& operands,
                           const TileStandIn* stand_in) {
  const Execution x{&schedule, &operands, stand_in};
  return make_program(schedule, cursors, kFamilyNames, [x](RoleContext& c, Ring r) { return RoleWorker(c, r, x); });
}

}  // namespace tilewire::moe_dispatch
