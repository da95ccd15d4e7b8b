// Ring attention for the simulator: which memory each role's work reads and writes, and what it costs. The iterators are
// those of schedule.h; nothing is computed here that they do not say.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/attention/cost.h"
#include "ops/attention/plan.h"
#include "ops/attention/schedule.h"
#include "schedule/simulator/op_model.h"

namespace tilewire::attention {

struct RankModel {
  using Problem = attention::Problem;
  using Choice = PlanChoice;
  using Tables = ScheduleTables;
  using Schedule = attention::Schedule;
  static constexpr const char* const* kFamilyNames = attention::kFamilyNames;

  Schedule schedule;
  Cursors cursors;

  RankModel(const Schedule& s, const PlanChoice& choice, const Problem&) : schedule(s), cursors(choice.cursors) {}

  void touch(const LoadWork& w, Touch& touch) const { touch.write(place(schedule.me(), w.chunk), content(w.chunk)); }
  // push and forward.
  void touch(const CopyWork& w, Touch& touch) const {
    if (!w.is_end) touch.copy(place(schedule.me(), w.chunk), place(w.to, w.chunk), content(w.chunk));
  }
  void touch(const SendWork& w, Touch& touch) const {
    if (w.command.kind == CommandKind::write) touch.need(place(schedule.me(), w.chunk), content(w.chunk));
  }
  void touch(const ItemWork& w, Touch& touch) const {
    if (w.is_end) return;
    touch.tile(w.is_last ? w.item : -1, item_flops(schedule, w));
    touch.charge(kept_bytes(schedule, w));
    for (int32_t i = 0; i < w.blocks.count; ++i) {
      const ChunkRef block{w.source, Chunk{w.blocks.first + i}};
      if (!schedule.is_looked_at(w.tile, block)) continue;
      const ChunkRef c{w.source, Chunk{w.pair * schedule.blocks_of(w.source) + block.chunk.value}};
      touch.need(place(schedule.me(), c), content(c));  // what loading costs is in the flops
    }
  }
  void touch(const ReleaseWork&, Touch&) const {}
  void touch(const DrainWork&, Touch&) const {}

  int64_t tiles() const { return schedule.items(); }
  std::vector<UserInput> user_inputs() const { return {}; }

 private:
  static Content content(ChunkRef c) { return {kBlockArrived, c.source, c.chunk.value, 0}; }
  MemoryRange place(Rank at, ChunkRef c) const {
    return {at, SimArea::half, schedule.offset(at, c), schedule.bytes(c)};
  }
};

}  // namespace tilewire::attention
