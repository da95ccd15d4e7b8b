// GEMM+ReduceScatter for the simulator: which memory each role's work reads and writes, and what it costs. The iterators
// are those of schedule.h; nothing is computed here that they do not say.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/gemm_rs/plan.h"
#include "ops/gemm_rs/schedule.h"
#include "schedule/machine.h"
#include "schedule/simulator/op_model.h"

namespace tilewire::gemm_rs {

struct RankModel {
  using Problem = gemm_rs::Problem;
  using Choice = PlanChoice;
  using Tables = ScheduleTables;
  using Schedule = gemm_rs::Schedule;
  static constexpr const char* const* kFamilyNames = gemm_rs::kFamilyNames;

  Schedule schedule;
  Cursors cursors;
  int64_t k = 0;
  int64_t out_bytes = 2;  // of an element of the result

  RankModel(const Schedule& s, const PlanChoice& choice, const Problem& problem)
      : schedule(s), cursors(choice.cursors), k(problem.k), out_bytes(size_bytes(problem.out_dtype)) {}

  void touch(const ComputeWork& w, Touch& touch) const {
    touch.tile(schedule.map.global(w.chunk), chunk_flops(schedule, w.chunk, k));
    touch.write(partial(schedule.me(), w.chunk), partial_content(schedule.me(), w.chunk));
  }
  void touch(const ReduceWork& w, Touch& touch) const {
    read_partials(w.chunk, touch);
    touch.write(sent(w.chunk), sum_content(schedule.me(), w.chunk));
  }
  void touch(const SendWork& w, Touch& touch) const {
    if (w.command.kind == CommandKind::write) touch.need(sent(w.chunk), sum_content(schedule.me(), w.chunk));
  }
  // Results are the caller's memory: they are counted as tiles behind the partial sums.
  void touch(const FinishWork& w, Touch& touch) const {
    touch.tile(schedule.map.total_chunks() + w.chunk.chunk.value, 0);
    read_partials(w.chunk, touch);
    for (int32_t i = 0; i < schedule.other_nodes(); ++i) {
      const int64_t offset = schedule.received_offset(schedule.other_node(i), w.chunk);
      touch.read({schedule.me(), SimArea::half, offset, schedule.sum_bytes(w.chunk)},
                 sum_content(schedule.sender(i), w.chunk));
    }
    touch.charge(schedule.map.rows(w.chunk).rows() * schedule.map.columns(w.chunk).cols() * out_bytes);
  }
  void touch(const DrainWork&, Touch&) const {}

  int64_t tiles() const { return int64_t{schedule.map.total_chunks()} + schedule.map.chunks_of(schedule.me()); }
  std::vector<UserInput> user_inputs() const { return {}; }

  static double chunk_flops(const Schedule& s, OwnedChunk c, int64_t k) {
    return gemm_tile_flops(s.map.rows(c).rows(), s.map.columns(c).cols(), k);
  }

 private:
  Content partial_content(Rank source, OwnedChunk c) const {
    return {kPartialArrived, source, schedule.map.global(c), 0};
  }
  Content sum_content(Rank sender, OwnedChunk c) const { return {kNodeSummed, sender, schedule.map.global(c), 0}; }
  MemoryRange partial(Rank source, OwnedChunk c) const {
    return {schedule.taker(c.owner), SimArea::half, schedule.partial_offset(source, c), schedule.partial_bytes(c)};
  }
  MemoryRange sent(OwnedChunk c) const {
    return {schedule.me(), SimArea::half, schedule.sent_offset(c), schedule.sum_bytes(c)};
  }
  void read_partials(OwnedChunk c, Touch& touch) const {
    for (int32_t i = 0; i < schedule.width(); ++i) {
      touch.read(partial(schedule.source(i), c), partial_content(schedule.source(i), c));
    }
  }
};

}  // namespace tilewire::gemm_rs
