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

// push and forward.
inline void touch_work(const Schedule& s, int64_t, const CopyWork& w, Touch& touch) {
  const MemoryRange to = gathered_range(s, w.to, w.chunk);
  if (w.from_input && !s.own_in_user) {
    touch.write(to, shard_content(w.chunk));
  } else {
    touch.copy(source_range(s, w.chunk), to, shard_content(w.chunk));
  }
}

inline void touch_work(const Schedule& s, int64_t, const SendWork& w, Touch& touch) {
  if (w.command.kind == CommandKind::write) touch.read(source_range(s, w.chunk), shard_content(w.chunk));
}

inline void touch_work(const Schedule& s, int64_t k, const TileWork& w, Touch& touch) {
  touch.tile(w.tile,
             2.0 * static_cast<double>(w.rows.rows() * (w.columns.end - w.columns.begin)) * static_cast<double>(k));
  if (s.chunks.total_chunks() == 0) return;
  const int32_t last = s.chunks.global(s.chunks.of_row(w.rows.end - 1));
  for (int32_t g = s.chunks.global(s.chunks.of_row(w.rows.begin)); g <= last; ++g) {
    const ChunkRef c = s.chunks.at(g);
    touch.read(source_range(s, c), shard_content(c));
  }
}

inline void touch_work(const Schedule&, int64_t, const DrainWork&, Touch&) {}

// The model of any role of the list in schedule.h.
template <class R>
struct RoleModel {
  using Role = R;
  using Work = typename R::Work;
  R role;
  Schedule s;
  int64_t k = 0;

  Role start() const { return role; }
  void touch(const Work& w, Touch& touch) const { touch_work(s, k, w, touch); }
  const Command* command(const Work& w) const requires requires { w.command; }
  { return &w.command; }
};

// Adds the agents of one rank to a call.
inline void add_rank(SimCall& call, const Schedule& s, Cursors cursors, int64_t k) {
  add_call_roles(call, s.frame, s.frame.has_network() ? static_cast<int32_t>(Ring::call) : -1, s.own_in_user);
  for_each_role(s, cursors, [&]<class Role>(const AgentPlace& place, const Role& role) {
    call.add(s.me(), place, RoleModel<Role>{role, s, k});
  });
  call.set_tiles(s.me(), s.grid.tiles());
  if (!s.own_in_user) return;
  for (int32_t c = 0; c < s.own_chunks(); ++c) {
    const ChunkRef chunk{s.me(), Chunk{c}};
    call.add_user_input({input_range(s, chunk), shard_content(chunk)});
  }
}

}  // namespace tilewire::ag_gemm
