// What all fused kernels are given alike: prepares the parameters of a call. Host code.
#pragma once

#include "device/comm/call_view.cuh"
#include "device/comm/device_tables.cuh"

namespace tilewire {

// The tables of the topology, and all of the call but its hash and its trace: on the device once `tables` are uploaded.
// `ctas`: of the rank's grid.
void place_call(DeviceTables& tables, const DeviceRank& rank, int32_t ctas, CallFrame& frame, CallView& call);

// Of one launch.
inline void name_call(CallView& call, uint64_t agreed_hash, const DeviceRank& rank) {
  call.agreed_hash = agreed_hash;
  if (rank.trace != nullptr) call.trace = *rank.trace;
  call.trace.op = call.limits.op;
}

}  // namespace tilewire
