// Prepares what the roles of a reduction are given. Host code.
#pragma once

#include "device/comm/device_rank.h"
#include "device/comm/device_tables.cuh"
#include "device/reduction/reduction_view.cuh"
#include "device/tile/tensor_map.cuh"
#include "schedule/reduction_work_lists.h"

#include <span>
#include <vector>

namespace tilewire {

// How this rank's partial sums are seen by its stores: as ReductionView::slots has them, for boxes of so many rows and
// columns of 16 bits. `source_slots`: how many one source has at each rank of the node. Maps of slots that there are none
// of are left empty.
std::vector<CUtensorMap> encode_slots(const ReductionSchedule& s, std::span<const int32_t> source_slots,
                                      const DeviceRank& rank, DataType partial, TensorBox box);

// A list and its view on the device, which stay where they are until `tables` are uploaded.
template <class TableWork>
void place_works(DeviceTables& tables, const WorkList<TableWork>& list, WorkTable<TableWork>& view) {
  view = list.view();
  tables.place(view.works, list.works());
  tables.place(view.begin, list.workers() + 1);
  tables.place(view.needs, list.needs());
  tables.place(view.publishes, list.publishes());
}

// The tables behind the map and the view, on the device once `tables` are uploaded; `slots` and `works` stay where they
// are until then. `sums`: of the schedule.
void place_reduction(DeviceTables& tables, const std::vector<CUtensorMap>& slots, const ReductionWorkLists& works,
                     int32_t sums, ReductionSchedule& s, ReductionView& view);

}  // namespace tilewire
