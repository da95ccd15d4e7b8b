// GEMM+AllReduce for the simulator: which memory each role's work reads and writes, and what it costs. The iterators are
// those of schedule.h; nothing is computed here that they do not say.
#pragma once

#include <cstdint>

#include "ops/gemm_ar/plan.h"
#include "ops/gemm_ar/schedule.h"
#include "schedule/simulator/reduction_model.h"

namespace tilewire::gemm_ar {

struct RankModel : ReductionModel<Schedule> {
  using Problem = gemm_ar::Problem;
  using Choice = PlanChoice;
  using Tables = ScheduleTables;
  static constexpr const char* const* kFamilyNames = gemm_ar::kFamilyNames;

  RankModel(const Schedule& s, const PlanChoice& choice, const Problem& problem)
      : ReductionModel{s, choice.cursors, problem.k, size_bytes(problem.out_dtype)} {}

  using ReductionModel::touch;

  // ---- two shots
  void touch(const SendWork& w, Touch& touch) const {
    if (w.kind == SendWork::Kind::result) {
      touch.need(finished(w.chunk), result_content(w.chunk));
    } else {
      ReductionModel::touch(w, touch);  // of a sum that it sends
    }
  }
  // One copy at each rank of the node, whose words the chunk gets; the caller's is charged as the result is.
  void touch(const OwnedSumWork& w, Touch& touch) const {
    touch_result(w.chunk, schedule.map.global(w.chunk), touch);
    touch.write(finished(w.chunk), result_content(w.chunk));
    for (int32_t i = 0; i < schedule.width() - 1; ++i) {
      touch.write(result(schedule.topology().local_peer(schedule.me(), i), w.chunk), result_content(w.chunk));
    }
  }
  void touch(const ForwardWork& w, Touch& touch) const {
    touch.copy(result(schedule.me(), w.chunk), result(w.to, w.chunk), result_content(w.chunk));
  }
  void touch(const CollectWork& w, Touch& touch) const {
    touch.tile(schedule.map.total_chunks() + schedule.map.global(w.chunk), 0);
    touch.read(result(schedule.me(), w.chunk), result_content(w.chunk));
  }

  // ---- one shot
  void touch(const one_shot::ComputeWork& w, Touch& touch) const {
    touch_product(w.chunk, touch);
    for (int32_t i = 0; i < schedule.width(); ++i) {
      touch.write(partial(schedule.source(i), schedule.me(), w.chunk), partial_content(schedule.me(), w.chunk));
    }
  }
  void touch(const one_shot::ReduceWork& w, Touch& touch) const { touch_node_sum(w.chunk, touch); }
  void touch(const one_shot::SendWork& w, Touch& touch) const {
    if (w.command.kind == CommandKind::write) touch.need(sent(w.chunk), sum_content(schedule.me(), w.chunk));
  }
  void touch(const one_shot::ForwardWork& w, Touch& touch) const {
    touch.copy(received(schedule.me(), w), received(w.to, w), sum_content(w.adder, w.chunk));
  }
  void touch(const one_shot::FinishWork& w, Touch& touch) const {
    touch_result(w.chunk, schedule.map.global(w.chunk), touch);
  }

  // Products, and chunks of the result.
  int64_t tiles() const { return 2 * int64_t{schedule.map.total_chunks()}; }

 private:
  MemoryRange result(Rank at, OwnedChunk c) const {
    return {at, SimArea::half, schedule.result_offset(c), schedule.result_chunk_bytes(c)};
  }
  MemoryRange finished(OwnedChunk c) const {
    return {schedule.me(), SimArea::half, schedule.finished_offset(c), schedule.result_chunk_bytes(c)};
  }
  Content result_content(OwnedChunk c) const { return {kResultArrived, c.owner, schedule.map.global(c), 0}; }
  MemoryRange received(Rank at, const one_shot::ForwardWork& w) const {
    const Node from = schedule.topology().node(w.adder);
    return {at, SimArea::half, schedule.received_offset(from, w.chunk), schedule.sum_bytes(w.chunk)};
  }
};

}  // namespace tilewire::gemm_ar
