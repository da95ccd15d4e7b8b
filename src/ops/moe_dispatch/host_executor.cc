#include "ops/moe_dispatch/host_executor.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <cstring>

#include "arithmetic/host_gemm.h"
#include "executor/matrix_copy.h"
#include "executor/op_program.h"

namespace tilewire::moe_dispatch {
namespace {

// What the role bodies of one call share. Copied into each, so that the program may outlive the frame that made it.
struct Execution {
  const Schedule* schedule;
  const HostOperands* operands;
  const TileStandIn* stand_in;
};

// A header before each token in an outbox: which token it is, and by slot the place of its expert among those of the
// receiving node, or -1.
int32_t* header_of(std::byte* token) { return reinterpret_cast<int32_t*>(token); }

class RoleWorker {
 public:
  RoleWorker(RoleContext& context, Ring ring, const Execution& x) : hands_(context, ring), x_(x), s_(*x.schedule) {}

  // ---- counts
  TraceEvent operator()(const CountWork& w) {
    const int32_t rounds = s_.rounds_of_tokens(s_.tokens);
    if (w.to != s_.me()) return give_record(s_.me(), w.to, s_.record_bytes(rounds));
    auto* record = reinterpret_cast<int32_t*>(own_half() + s_.buffers.record_offset(s_.me()));
    const auto words = static_cast<size_t>(s_.record_bytes(rounds) / int64_t{sizeof(int32_t)});
    s_.tables->count(s_, x_.operands->routes, {record, words});
    return {.name = "count"};
  }
  TraceEvent operator()(const RouteWork&) {
    s_.tables->route(s_, x_.operands->most_rows, [this](Rank r) { return record_of(r); });
    check_counted();
    return {.name = "route"};
  }

  // ---- rows
  TraceEvent operator()(const PushWork& w) {
    if (w.is_gate) return {};
    const int32_t first = s_.experts.first_on(s_.topology(), s_.node());
    const RowRange places = s_.piece_places(w.to, w.piece);
    int64_t bytes = 0;
    for (int64_t place = places.begin; place < places.end; ++place) {
      const auto node_place = static_cast<int32_t>(place);
      const std::span<const int32_t> rows = s_.tables->own_rows(w.round, first + node_place);
      int64_t row = s_.cell(w.round, node_place, s_.position_of[s_.me().value]).begin;
      for (const int32_t entry : rows) {
        const RowOrigin origin{entry / s_.top_k, entry % s_.top_k};
        place_row(w.to, w.round, row++, origin, [&](std::byte* to) { pack_token(origin.token, to); });
      }
      bytes += static_cast<int64_t>(rows.size()) * s_.buffers.row_pitch;
    }
    return {.name = "rows",
            .work = w.round,
            .source = s_.me().value,
            .bytes = bytes,
            .link = w.to == s_.me() ? TraceLink::copy : TraceLink::node};
  }
  TraceEvent operator()(const PackWork& w) {
    if (w.is_gate) return {};
    const std::span<const int32_t> tokens = s_.tables->own_tokens(w.chunk.round, w.chunk.to);
    const int32_t first = s_.experts.first_on(s_.topology(), w.chunk.to);
    const int32_t end = s_.experts.end_on(s_.topology(), w.chunk.to);
    std::byte* to = own_half() + s_.outbox_offset(w.chunk.to, w.chunk.round, w.tokens.begin);
    for (int64_t i = w.tokens.begin; i < w.tokens.end; ++i, to += s_.buffers.token_pitch) {
      const int32_t token = tokens[static_cast<size_t>(i)];
      std::memset(to, 0, static_cast<size_t>(header_bytes()));
      header_of(to)[0] = token;
      for (int32_t slot = 0; slot < s_.top_k; ++slot) {
        const int64_t expert = x_.operands->routes.expert(token, slot);
        const int32_t place = expert < 0 ? -1 : s_.experts.place_of[expert];
        header_of(to)[1 + slot] = place >= first && place < end ? place - first : -1;
      }
      pack_token(token, to + header_bytes());
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
  // Rows of an expert come in the order of tokens and slots, as their source has counted them.
  TraceEvent operator()(const ForwardWork& w) {
    if (w.is_gate) return {};
    if (w.is_record) return give_record(w.source, w.to, s_.record_bytes(record_rounds(w.source)));
    if (w.number == 0) next_row_.assign(static_cast<size_t>(s_.routing->places), 0);
    const int32_t position = s_.position_of[w.source.value], first = s_.experts.first_on(s_.topology(), s_.node());
    const int64_t offset = s_.buffers.staging_offset(s_.entry(w.source, s_.me()), w.round, w.tokens.begin);
    std::byte* from = own_half() + offset;
    int64_t bytes = 0;
    for (int64_t i = 0; i < w.tokens.rows(); ++i, from += s_.buffers.token_pitch) {
      for (int32_t slot = 0; slot < s_.top_k; ++slot) {
        const int32_t place = header_of(from)[1 + slot];
        if (place < 0) continue;
        const int64_t row = s_.cell(w.round, place, position).begin + next_row_[static_cast<size_t>(place)]++;
        place_row(s_.experts.rank_of[first + place], w.round, row, {header_of(from)[0], slot}, [&](std::byte* to) {
          std::memcpy(to, from + header_bytes(), static_cast<size_t>(s_.buffers.row_pitch));
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
    const auto place = s_.first_own_place() + w.expert;
    if (!w.columns.is_gather_copy) multiply(w, result_bytes);
    for (int32_t p = w.first; p <= w.last; ++p) {
      const Cell& cell = s_.cell(w.round, place, p);
      const int64_t begin = std::max<int64_t>(w.rows.begin, cell.begin);
      const int64_t end = std::min<int64_t>(w.rows.end, cell.begin + cell.rows);
      if (begin >= end) continue;
      const int64_t in_round = (int64_t{w.round} * s_.own_experts() + w.expert) * s_.ranks() + p;
      const int64_t result = s_.routing->result_row[in_round] + begin - cell.begin;
      for (int64_t row = begin; row < end; ++row) {
        if (w.columns.is_gather_copy) {
          copy_origin(w.round, row, s_.source_at[p], result + row - begin);
        } else if (x_.stand_in == nullptr) {
          std::memcpy(element_at(x_.operands->out, result + row - begin, w.columns.begin),
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
      *o.counts = {s_.tables->rows_of(), s_.tables->tokens_of()};
      return {};
    }
    const std::vector<int64_t>& offsets = s_.tables->offsets();
    const bool has_moved = !s_.tables->has_overflow();
    std::copy(offsets.begin(), offsets.end(), o.offsets);
    for (int64_t row = has_moved ? offsets.back() : 0; row < o.out.rows; ++row) {
      std::fill_n(o.origins + 3 * row, 3, -1);
      if (o.out.cols > 0) {
        std::memset(element_at(o.out, row, 0), 0, static_cast<size_t>(o.out.cols * size_bytes(o.out.dtype)));
      }
    }
    return {};
  }

 private:
  std::byte* own_half() { return hands_.context().own_half(); }
  int64_t header_bytes() const { return s_.buffers.token_pitch - s_.buffers.row_pitch; }
  const int32_t* record_of(Rank r) {
    return reinterpret_cast<const int32_t*>(own_half() + s_.buffers.record_offset(r));
  }
  int32_t record_rounds(Rank r) {
    int64_t tokens = 0;
    std::memcpy(&tokens, record_of(r), sizeof(tokens));
    return s_.rounds_of_tokens(tokens);
  }
  TraceEvent give_record(Rank of, Rank to, int64_t bytes) {
    hands_.context().copy_to(to, s_.buffers.record_offset(of), bytes);
    return {.name = "counts", .source = of.value, .bytes = bytes, .link = TraceLink::node};
  }
  // An earlier call has said how many rows there are, and the result is as large.
  void check_counted() const {
    const int64_t expected = x_.operands->counted_rows, rows = s_.tables->offsets().back();
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
  void place_row(Rank at, int32_t round, int64_t row, const RowOrigin& origin, const Write& write) {
    std::byte* half = hands_.context().half_of(at);
    write(half + s_.buffers.rows_offset(round, row));
    std::memcpy(half + s_.buffers.origins_offset(round, row), &origin, sizeof(origin));
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
  std::vector<int32_t> next_row_;  // of each expert of the node, from the source and round at hand
  std::vector<std::byte> tile_;
};

}  // namespace

Call::Program host_program(const Schedule& schedule, Cursors cursors, const HostOperands& operands,
                           const TileStandIn* stand_in) {
  const Execution x{&schedule, &operands, stand_in};
  return make_program(schedule, cursors, kFamilyNames, [x](RoleContext& c, Ring r) { return RoleWorker(c, r, x); });
}

}  // namespace tilewire::moe_dispatch
