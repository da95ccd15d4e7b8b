// The roles of AllGather+GEMM: one iterator a role, pure integer logic for the host executor, the kernel and the
// simulator.
//
//   push     copies the own shard into the own gathered buffer, then into those of the local peers
//   send     hands the own shard's chunks to the proxy, one for every other node, along the rail
//   forward  on the rail entry rank: copies chunks that came by network to the local peers
//   compute  multiplies row blocks whose chunks are here; own rows first, then by expected arrival
//   drain    acquires every word addressed to this rank, so that nothing of this call is in flight when it says done
//
// The relay role (arrivals that the proxy announces) is the same for all ops: schedule/relay_role.h.
#pragma once

#include <cstdint>

#include "ops/ag_gemm/flags.h"
#include "ops/ag_gemm/roles.h"
#include "schedule/call_roles.h"
#include "schedule/chunk_map.h"
#include "schedule/column_map.h"
#include "schedule/gather_walk.h"
#include "schedule/role.h"
#include "schedule/tile_grid.h"
#include "schedule/wire.h"

namespace tilewire::ag_gemm {

// All that the roles of one rank look at. The tables behind it belong to the plan.
struct Schedule {
  CallFrame frame;
  ChunkMap chunks;
  TileGrid grid;
  ColumnMap columns;
  Buffers buffers;
  const int32_t* row_order = nullptr;  // [row_blocks] row blocks by expected arrival
  int32_t workers = 1;                 // compute workers of this rank
  int32_t push_workers = 1;            // chunks are dealt out among them
  bool is_fused = true;                // false: the first tile waits for the whole gather
  int32_t forward_workers = 1;         // copies to local peers are dealt out among them
  bool own_in_user = false;            // the own shard is read where it lies in the user area, and not copied
  int64_t user_offset = 0;             // own_in_user: where it lies, from the start of the user area
  bool own_in_place = false;           // row blocks of own rows alone are multiplied from where the caller has them

  TILEWIRE_HD constexpr const Topology& topology() const { return frame.topology; }
  TILEWIRE_HD constexpr Rank me() const { return frame.me; }
  TILEWIRE_HD constexpr int32_t own_chunks() const { return chunks.chunks_of(frame.me); }
  TILEWIRE_HD constexpr int64_t bytes(ChunkRef c) const { return chunks.rows(c).rows() * buffers.pitch_bytes; }
  // Whether all of these rows are read from where the caller has them.
  TILEWIRE_HD constexpr bool reads_input(const RowRange& rows) const {
    return own_in_place && rows.begin >= chunks.row_begin[frame.me.value] &&
           rows.end <= chunks.row_begin[frame.me.value + 1];
  }
  // Whether an own chunk goes into the own gathered buffer: it is sent from there, and row blocks with rows of other
  // ranks read it there.
  TILEWIRE_HD constexpr bool copies_own(Chunk c) const {
    if (own_in_user || !own_in_place || frame.has_network()) return !own_in_user;
    const RowRange rows = chunks.rows({frame.me, c});
    return !reads_input(grid.block_rows(static_cast<int32_t>(rows.begin / grid.tile_rows))) ||
           !reads_input(grid.block_rows(static_cast<int32_t>((rows.end - 1) / grid.tile_rows)));
  }
  TILEWIRE_HD constexpr Need begun(Rank source) const {
    return {frame.arena.flags.begun(source == me() ? me() : topology().deliverer(source, me())), 0};
  }
  TILEWIRE_HD constexpr Need arrived(ChunkRef c) const {
    return c.source == me() && !copies_own(c.chunk) ? begun(me()) : Need{buffers.shard_arrived(c), 0};
  }
};

// A chunk on its way to a rank of the own node.
struct CopyWork : WorkBase {
  ChunkRef chunk;
  Rank to;
  RowRange rows;            // global
  bool from_input = false;  // source is the caller's shard, else the own gathered buffer
};

class PushRole {
 public:
  using Work = CopyWork;
  TILEWIRE_HD explicit constexpr PushRole(const Schedule& s, int32_t worker = 0) : s_(s), chunk_(worker) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    const int32_t steps = s_.topology().ranks_on(s_.topology().node(s_.me()));  // own copy and each local peer
    for (; chunk_ < s_.own_chunks(); chunk_ += s_.push_workers, step_ = 0) {
      if (step_ == 0 && !s_.copies_own(Chunk{chunk_})) step_ = 1;
      if (step_ < steps) break;
    }
    if (chunk_ >= s_.own_chunks()) return false;
    w = Work{};
    w.publishes = 1;
    w.chunk = {s_.me(), Chunk{chunk_}};
    w.rows = s_.chunks.rows(w.chunk);
    w.from_input = step_ == 0 || !s_.copies_own(w.chunk.chunk);
    w.to = step_ == 0 ? s_.me() : s_.topology().local_peer(s_.me(), step_ - 1);
    ++step_;
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work&, int32_t) const { return {}; }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t) const {
    return {w.to, s_.buffers.shard_arrived(w.chunk)};
  }

 private:
  Kept<Schedule> s_;
  int32_t chunk_;
  int32_t step_ = 0;
};

// A command for the proxy: a chunk of the own shard for one other node, or the end of the ring for this call.
struct SendWork : WorkBase {
  ChunkRef chunk;
  RowRange rows;
  Command command;
};

class SendRole {
 public:
  using Work = SendWork;
  TILEWIRE_HD explicit constexpr SendRole(const Schedule& s) : s_(s) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    w = Work{};
    w.chunk.source = s_.me();
    Node to;
    if (!walk_.next(s_.topology(), s_.me(), s_.own_chunks(), w.chunk.chunk, to)) return end_.next(s_.frame, w);
    w.needs = 1;
    w.rows = s_.chunks.rows(w.chunk);
    w.command = write(w, to);
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t) const { return s_.arrived(w.chunk); }
  TILEWIRE_HD constexpr Publish publish(const Work&, int32_t) const { return {}; }

 private:
  TILEWIRE_HD constexpr Command write(const Work& w, Node to) const {
    const int64_t dst = s_.buffers.gathered_offset(w.rows.begin);
    const int64_t own_row = w.rows.begin - s_.chunks.row_begin[s_.me().value];
    const int64_t src = s_.own_in_user ? s_.user_offset + own_row * s_.buffers.pitch_bytes : dst;
    return {.kind = CommandKind::write,
            .peer = s_.topology().rail_partner(s_.me(), to),
            .word = s_.buffers.shard_arrived(w.chunk),
            .units = static_cast<uint32_t>(s_.bytes(w.chunk) / kWireUnitBytes),
            .from_user = s_.own_in_user,
            .src_unit = static_cast<uint64_t>(src) / kWireUnitBytes,
            .dst_unit = static_cast<uint64_t>(dst) / kWireUnitBytes};
  }

  Kept<Schedule> s_;
  RailWalk walk_;
  RingEnd end_;
};

class ForwardRole {
 public:
  using Work = CopyWork;
  TILEWIRE_HD explicit constexpr ForwardRole(const Schedule& s, int32_t worker = 0)
      : s_(s), walk_(s.topology(), s.me(), worker, s.forward_workers) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    w = Work{};
    const auto chunks_of = [this](Rank source) { return s_.chunks.chunks_of(source); };
    if (!walk_.next(s_.topology(), s_.me(), chunks_of, w.chunk, w.to)) return false;
    w.needs = 2;
    w.publishes = 1;
    w.rows = s_.chunks.rows(w.chunk);
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    return i == 0 ? s_.begun(w.chunk.source) : s_.arrived(w.chunk);
  }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t) const {
    return {w.to, s_.buffers.shard_arrived(w.chunk)};
  }

 private:
  Kept<Schedule> s_;
  ForwardWalk walk_;
};

// An output tile, or (is_gather_copy) the rows of a row block for the caller who wants the gathered matrix too.
struct TileWork : WorkBase {
  int64_t tile = 0;  // in order of the walk
  int32_t row_block = 0;
  ColumnMap::Block columns;
  RowRange rows;            // global
  bool from_input = false;  // all rows are own ones and read from where the caller has them
  int32_t first_chunk = 0;  // global number; needs go over the chunks from here on
  ChunkRef first;           // the same chunk
};

// Which worker takes a tile is free, as long as each takes its tiles in their order: no other work waits for a tile, so
// whoever has one waits for nothing that a tile not yet taken would bring. Here they are dealt out in turn; who deals
// otherwise calls take().
class ComputeRole {
 public:
  using Work = TileWork;
  TILEWIRE_HD constexpr ComputeRole(const Schedule& s, int32_t worker) : s_(s), tile_(worker) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    if (!take(tile_, w)) return false;
    tile_ += s_.workers;
    return true;
  }
  // Tile `tile`, behind those that this worker has taken. False: there are fewer.
  TILEWIRE_HD constexpr bool take(int64_t tile, Work& w) {
    if (tile >= s_.grid.tiles()) return false;
    const TileGrid::Position at = s_.grid.position(tile);
    w = Work{};
    w.tile = tile;
    w.row_block = s_.row_order[at.row_step];
    w.columns = s_.columns.block(at.col_block);
    w.rows = s_.grid.block_rows(w.row_block);
    set_needs(w);
    is_first_ = false;
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const {
    const ChunkRef c = chunk(w, i / 2);
    return i % 2 == 0 ? s_.begun(c.source) : s_.arrived(c);
  }
  TILEWIRE_HD constexpr Publish publish(const Work&, int32_t) const { return {}; }

 private:
  // Mostly one of the source that the tile begins with, which needs no search.
  TILEWIRE_HD constexpr ChunkRef chunk(const Work& w, int32_t i) const {
    const int32_t number = w.first.chunk.value + i;
    if (number < s_.chunks.chunks_of(w.first.source)) return {w.first.source, Chunk{number}};
    return s_.chunks.at(w.first_chunk + i);
  }
  TILEWIRE_HD constexpr void set_needs(Work& w) const {
    if (s_.chunks.total_chunks() == 0 || (s_.is_fused && w.rows.rows() == 0)) return;
    int32_t last = s_.chunks.total_chunks() - 1;
    w.from_input = s_.reads_input(w.rows);
    if (s_.is_fused && w.from_input) return;
    if (s_.is_fused) {
      w.first = s_.chunks.of_row(w.rows.begin);
      w.first_chunk = s_.chunks.global(w.first);
      last = s_.chunks.global(s_.chunks.of_row(w.rows.end - 1));
    } else if (is_first_) {
      w.first = s_.chunks.at(0);
    } else {
      return;
    }
    w.needs = 2 * (last - w.first_chunk + 1);
  }

  Kept<Schedule> s_;
  int64_t tile_;
  bool is_first_ = true;
};

// One piece of work a source: all its chunks.
struct DrainWork : WorkBase {
  Rank source;
};

class DrainRole {
 public:
  using Work = DrainWork;
  TILEWIRE_HD explicit constexpr DrainRole(const Schedule& s) : s_(s) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    if (source_ >= s_.topology().ranks) return false;
    w = Work{};
    w.source = Rank{source_++};
    w.needs = s_.chunks.chunks_of(w.source);
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const { return s_.arrived({w.source, Chunk{i}}); }
  TILEWIRE_HD constexpr Publish publish(const Work&, int32_t) const { return {}; }

 private:
  Kept<Schedule> s_;
  int32_t source_ = 0;
};

// The agents of a rank beside those of every call: visit(place, iterator) for each role of the list in roles.h and each of
// its workers. The host executor, the kernel's tests and the simulator take stages and cursors from here.
template <class Visit>
TILEWIRE_HD constexpr void for_each_role(const Schedule& s, Cursors cursors, Visit&& visit) {
  for (int32_t worker = 0; worker < s.push_workers; ++worker) {
    // Its copies to peers read the own copy.
    visit(Roles::place("push").at(worker).with(cursors).reading_own_writes(), PushRole(s, worker));
  }
  if (s.frame.has_network()) {
    visit(Roles::place("send").with(cursors), SendRole(s));
    for (int32_t worker = 0; worker < s.forward_workers; ++worker) {
      visit(Roles::place("forward").at(worker).with(cursors), ForwardRole(s, worker));
    }
  }
  for (int32_t worker = 0; worker < s.workers; ++worker) {
    visit(Roles::place("compute").at(worker).with(cursors), ComputeRole(s, worker));
  }
  visit(Roles::place("drain").in_stage(kDrainStage), DrainRole(s));
}

}  // namespace tilewire::ag_gemm
