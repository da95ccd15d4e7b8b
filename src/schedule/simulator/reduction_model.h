// A matrix that is summed over ranks, for the simulator: which memory the work of its roles (schedule/reduction_roles.h)
// reads and writes, and what it costs. Nothing is computed here that the schedule does not say.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/machine.h"
#include "schedule/reduction_roles.h"
#include "schedule/simulator/op_model.h"

namespace tilewire {

inline double chunk_flops(const ReductionSchedule& s, OwnedChunk c, int64_t k) {
  return gemm_tile_flops(s.map.rows(c).rows(), s.map.columns(c).cols(), k);
}

// Base of an op's RankModel. OpSchedule derives from ReductionSchedule; where slots lie is asked of it.
template <class OpSchedule>
struct ReductionModel {
  using Schedule = OpSchedule;

  Schedule schedule;
  Cursors cursors;
  int64_t k = 0;
  int64_t out_bytes = 2;  // of an element of the result

  void touch(const PartialSumWork& w, Touch& touch) const {
    touch_product(w.chunk, touch);
    touch.write(partial(schedule.taker(w.chunk.owner), schedule.me(), w.chunk),
                partial_content(schedule.me(), w.chunk));
  }
  void touch(const NodeSumWork& w, Touch& touch) const { touch_node_sum(w.chunk, touch); }
  void touch(const SumSendWork& w, Touch& touch) const {
    if (w.command.kind == CommandKind::write) touch.need(sent(w.chunk), sum_content(schedule.me(), w.chunk));
  }
  void touch(const ReductionDrainWork&, Touch&) const {}

  std::vector<UserInput> user_inputs() const { return {}; }

 protected:
  void touch_product(OwnedChunk c, Touch& touch) const {
    touch.tile(schedule.map.global(c), chunk_flops(schedule, c, k));
  }
  void touch_node_sum(OwnedChunk c, Touch& touch) const {
    read_partials(c, touch);
    touch.write(sent(c), sum_content(schedule.me(), c));
  }
  // A result is the caller's memory: it is counted as a tile behind the partial sums.
  void touch_result(OwnedChunk c, int64_t number, Touch& touch) const {
    touch.tile(int64_t{schedule.map.total_chunks()} + number, 0);
    read_partials(c, touch);
    for (int32_t i = 0; i < schedule.other_nodes(); ++i) {
      const int64_t offset = schedule.received_offset(schedule.other_node(i), c);
      touch.read({schedule.me(), SimArea::half, offset, schedule.sum_bytes(c)},
                 sum_content(schedule.sum_sender(i, c), c));
    }
    touch.charge(result_bytes(c));
  }
  int64_t result_bytes(OwnedChunk c) const {
    return schedule.map.rows(c).rows() * schedule.map.columns(c).cols() * out_bytes;
  }
  Content partial_content(Rank source, OwnedChunk c) const {
    return {kPartialArrived, source, schedule.map.global(c), 0};
  }
  Content sum_content(Rank sender, OwnedChunk c) const { return {kNodeSummed, sender, schedule.map.global(c), 0}; }
  MemoryRange partial(Rank at, Rank source, OwnedChunk c) const {
    return {at, SimArea::half, schedule.partial_offset(source, c), schedule.partial_bytes(c)};
  }
  MemoryRange sent(OwnedChunk c) const {
    return {schedule.me(), SimArea::half, schedule.sent_offset(c), schedule.sum_bytes(c)};
  }
  void read_partials(OwnedChunk c, Touch& touch) const {
    for (int32_t i = 0; i < schedule.width(); ++i) {
      touch.read(partial(schedule.me(), schedule.source(i), c), partial_content(schedule.source(i), c));
    }
  }
};

}  // namespace tilewire
