// AllGather+GEMM for the simulator: which memory each role's work reads and writes, and what a tile costs. The
// iterators are those of schedule.h; nothing is computed here that they do not say.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/ag_gemm/cost.h"
#include "ops/ag_gemm/plan.h"
#include "ops/ag_gemm/schedule.h"
#include "schedule/simulator/op_model.h"

namespace tilewire::ag_gemm {

struct RankModel {
  using Problem = ag_gemm::Problem;
  using Choice = PlanChoice;
  using Tables = ScheduleTables;
  using Schedule = ag_gemm::Schedule;
  static constexpr const char* const* kFamilyNames = ag_gemm::kFamilyNames;

  Schedule schedule;
  Cursors cursors;
  int64_t k = 0;

  RankModel(const Schedule& s, const PlanChoice& choice, const Problem& problem)
      : schedule(s), cursors(choice.cursors), k(problem.k) {}

  // push and forward.
  void touch(const CopyWork& w, Touch& touch) const {
    const MemoryRange to = gathered(w.to, w.chunk);
    if (w.from_input && !schedule.own_in_user) {  // the caller's memory, which nobody else touches
      touch.write(to, content(w.chunk));
    } else {
      touch.copy(source(w.chunk), to, content(w.chunk));
    }
  }
  void touch(const SendWork& w, Touch& touch) const {
    if (w.command.kind == CommandKind::write) touch.need(source(w.chunk), content(w.chunk));
  }
  void touch(const TileWork& w, Touch& touch) const {
    const TileCost cost = tile_cost(schedule, w, k);
    touch.tile(w.tile, cost.flops);
    touch.charge(cost.copied_bytes);
    const ChunkMap& chunks = schedule.chunks;
    if (chunks.total_chunks() == 0 || w.from_input) return;
    const int32_t last = chunks.global(chunks.of_row(w.rows.end - 1));
    for (int32_t g = chunks.global(chunks.of_row(w.rows.begin)); g <= last; ++g) {
      const ChunkRef c = chunks.at(g);
      touch.need(source(c), content(c));  // what loading costs is in the flops
    }
  }
  void touch(const DrainWork&, Touch&) const {}

  int64_t tiles() const { return schedule.grid.tiles(); }
  std::vector<UserInput> user_inputs() const {
    std::vector<UserInput> inputs;
    for (int32_t c = 0; schedule.own_in_user && c < schedule.own_chunks(); ++c) {
      const ChunkRef chunk{schedule.me(), Chunk{c}};
      inputs.push_back({source(chunk), content(chunk)});
    }
    return inputs;
  }

 private:
  static Content content(ChunkRef c) { return {kShardArrived, c.source, c.chunk.value, 0}; }
  MemoryRange gathered(Rank where, ChunkRef c) const {
    const int64_t first_row = schedule.chunks.rows(c).begin;
    return {where, SimArea::half, schedule.buffers.gathered_offset(first_row), schedule.bytes(c)};
  }
  // Where a chunk lies at this rank: in the gathered buffer, or the own one where the caller put it.
  MemoryRange source(ChunkRef c) const {
    if (!schedule.own_in_user || c.source != schedule.me()) return gathered(schedule.me(), c);
    const int64_t own_row = schedule.chunks.rows(c).begin - schedule.chunks.row_begin[c.source.value];
    const int64_t offset = schedule.user_offset + own_row * schedule.buffers.pitch_bytes;
    return {c.source, SimArea::user, offset, schedule.bytes(c)};
  }
};

}  // namespace tilewire::ag_gemm
