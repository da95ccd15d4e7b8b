// AllGather+GEMM for the simulator: what each role's work touches. The iterators are those of schedule.h; nothing is
// computed here that they do not say.
#pragma once

#include "ops/ag_gemm/schedule.h"
#include "schedule/simulator/call_model.h"
#include "schedule/simulator/sim_program.h"

namespace tilewire::ag_gemm {

inline Content shard_content(ChunkRef c) { return {kShardArrived, c.source, c.chunk.value, 0}; }

inline MemoryRange gathered_range(const Schedule& s, Rank where, ChunkRef c) {
  return {where, SimArea::half, s.buffers.gathered_offset(s.chunks.rows(c).begin), s.bytes(c)};
}

// Where the own shard's chunk lies when it was not copied.
inline MemoryRange input_range(const Schedule& s, ChunkRef c) {
  const int64_t own_row = s.chunks.rows(c).begin - s.chunks.row_begin[s.me().value];
  return {s.me(), SimArea::user, s.user_offset + own_row * s.buffers.pitch_bytes, s.bytes(c)};
}

inline MemoryRange source_range(const Schedule& s, ChunkRef c) {
  return s.own_in_user && c.source == s.me() ? input_range(s, c) : gathered_range(s, s.me(), c);
}

struct PushModel {
  using Role = PushRole;
  Schedule s;

  Role start() const { return Role(s); }
  void touch(const CopyWork& w, Touch& touch) const {
    const MemoryRange to = gathered_range(s, w.to, w.chunk);
    if (w.from_input && !s.own_in_user) {
      touch.write(to, shard_content(w.chunk));
    } else {
      touch.copy(source_range(s, w.chunk), to, shard_content(w.chunk));
    }
  }
};

struct ForwardModel {
  using Role = ForwardRole;
  Schedule s;

  Role start() const { return Role(s); }
  void touch(const CopyWork& w, Touch& touch) const {
    touch.copy(gathered_range(s, s.me(), w.chunk), gathered_range(s, w.to, w.chunk), shard_content(w.chunk));
  }
};

struct SendModel {
  using Role = SendRole;
  Schedule s;

  Role start() const { return Role(s); }
  const Command* command(const SendWork& w) const { return &w.command; }
  void touch(const SendWork& w, Touch& touch) const {
    if (w.command.kind == CommandKind::write) touch.read(source_range(s, w.chunk), shard_content(w.chunk));
  }
};

struct ComputeModel {
  using Role = ComputeRole;
  Schedule s;
  int32_t worker = 0;
  int64_t k = 0;

  Role start() const { return Role(s, worker); }
  void touch(const TileWork& w, Touch& touch) const {
    touch.tile(w.tile,
               2.0 * static_cast<double>(w.rows.rows() * (w.columns.end - w.columns.begin)) * static_cast<double>(k));
    if (s.chunks.total_chunks() == 0) return;
    const int32_t last = s.chunks.global(s.chunks.of_row(w.rows.end - 1));
    for (int32_t g = s.chunks.global(s.chunks.of_row(w.rows.begin)); g <= last; ++g) {
      const ChunkRef c = s.chunks.at(g);
      touch.read(source_range(s, c), shard_content(c));
    }
  }
};

struct DrainModel {
  using Role = DrainRole;
  Schedule s;

  Role start() const { return Role(s); }
};

// The command rings of a rank, as the host executor numbers them.
struct SimRings {
  int32_t call = 0;
  int32_t send = 1;
};

// Adds the agents of one rank to a call.
inline void add_rank(SimCall& call, const Schedule& s, Cursors cursors, int64_t k) {
  const bool has_network = s.frame.has_network();
  add_call_roles(call, s.frame, has_network ? SimRings{}.call : -1, s.own_in_user);
  const auto place = [&](const char* role, int32_t worker, int32_t ring) {
    return AgentPlace{
        .role = role, .worker = worker, .stage = kOpStage, .ring = ring, .has_cursors = true, .cursors = cursors};
  };
  AgentPlace push = place("push", 0, -1);
  push.reads_own_writes = true;  // copies to peers read the own copy
  call.add(s.me(), push, PushModel{s});
  if (has_network) {
    call.add(s.me(), place("send", 0, SimRings{}.send), SendModel{s});
    call.add(s.me(), place("forward", 0, -1), ForwardModel{s});
  }
  for (int32_t w = 0; w < s.workers; ++w) call.add(s.me(), place("compute", w, -1), ComputeModel{s, w, k});
  call.add(s.me(), {.role = "drain", .stage = kDrainStage}, DrainModel{s});
  call.set_tiles(s.me(), s.grid.tiles());
  if (!s.own_in_user) return;
  for (int32_t c = 0; c < s.own_chunks(); ++c) {
    const ChunkRef chunk{s.me(), Chunk{c}};
    call.add_user_input({input_range(s, chunk), shard_content(chunk)});
  }
}

}  // namespace tilewire::ag_gemm
