// What the fused kernel does in either form, written down for it. Host code.
#pragma once

#include "ops/gemm_ar/schedule.h"
#include "schedule/reduction_work_lists.h"

namespace tilewire::gemm_ar {

inline ReductionWorkLists work_lists(const Schedule& s, WorkSize size) {
  if (s.is_one_shot) {
    return reduction_work_lists<one_shot::ComputeRole, one_shot::ReduceRole, one_shot::FinishRole>(
        s, size, [&](OwnedChunk chunk, SumWork& work) { work.row = static_cast<int32_t>(s.map.rows(chunk).begin); });
  }
  // The result goes to the slots of other ranks, too: to those of the node, and to where it is sent from.
  return reduction_work_lists<PartialSumRole, NodeSumRole, FinishRole>(s, size, [&](OwnedChunk chunk, SumWork& work) {
    work.row = static_cast<int32_t>(s.map.rows(chunk).begin);
    work.to = wire_unit(s.result_offset(chunk));
    work.also_to = wire_unit(s.finished_offset(chunk));
  });
}

// Other owners' chunks, from their slots (`partials`) into the result. Two shots only.
inline WorkList<SumWork> collect_list(const Schedule& s) {
  WorkList<SumWork> list;
  for (int32_t worker = 0; worker < s.reduce_workers && !s.is_one_shot; ++worker) {
    list.add(CollectRole(s, worker), [&](const CollectWork& w) {
      const RowRange rows = s.map.rows(w.chunk);
      const ColumnRange columns = s.map.columns(w.chunk);
      SumWork work;
      work.counter = work.number = s.map.global(w.chunk);
      work.rows = static_cast<int32_t>(rows.rows());
      work.cols = static_cast<int32_t>(columns.cols());
      work.partials = wire_unit(s.result_offset(w.chunk));
      work.row = static_cast<int32_t>(rows.begin);
      work.col = static_cast<int32_t>(columns.begin);
      return work;
    });
  }
  return list;
}

// Of one worker: results that came by network, or in one shot sums.
inline WorkList<MoveWork> forward_list(const Schedule& s) {
  WorkList<MoveWork> list;
  const auto add = [&](auto role, const auto& source_of, const auto& offset_of, const auto& bytes_of) {
    list.add(role, [&](const auto& w) {
      MoveWork work;
      work.counter = static_cast<int32_t>(list.works());
      work.number = s.map.global(w.chunk);
      work.source = source_of(w).value;
      work.to = w.to.value;
      work.at = wire_unit(offset_of(w));
      work.units = wire_unit(bytes_of(w));
      return work;
    });
  };
  if (s.is_one_shot) {
    using Work = one_shot::ForwardWork;
    add(
        one_shot::ForwardRole(s), [](const Work& w) { return w.adder; },
        [&](const Work& w) { return s.received_offset(s.topology().node(w.adder), w.chunk); },
        [&](const Work& w) { return s.sum_bytes(w.chunk); });
  } else {
    add(
        ForwardRole(s), [](const ForwardWork& w) { return w.chunk.owner; },
        [&](const ForwardWork& w) { return s.result_offset(w.chunk); },
        [&](const ForwardWork& w) { return s.result_chunk_bytes(w.chunk); });
  }
  return list;
}

}  // namespace tilewire::gemm_ar
