// What a rank on a GPU has for all the calls of its communicator, whatever the op: memory that kernels and host share.
#pragma once

#include "device/sync/call_remark.h"
#include "device/sync/fault_record.h"
#include "device/sync/trace_note.h"
#include "schedule/call_roles.h"
#include "schedule/ring_memory.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tilewire {

// CTAs of a fused kernel that have a warp beside their tiles which speaks for the rank: call, send, relay.
constexpr int32_t kRankWarps = 3;

// In the device memory of the rank, and of nobody else: what lasts from call to call. A kernel takes its epoch from here
// and moves it on, so that a launch can be replayed.
struct DeviceRankState {
  Epoch epoch = 0;               // of the last call that ended
  uint64_t busy = 0;             // 1 while a call runs
  uint64_t posted[kRings] = {};  // commands put into each ring so far
  uint64_t taken = 0;            // arrivals taken from the arrival ring so far
};

struct DeviceRank {
  std::vector<std::byte*> arenas;  // by rank; null for ranks of other nodes. The own one zeroed before the first call
  DeviceRankState* state = nullptr;
  FaultRecord* fault = nullptr;           // pinned host memory
  CallRemark* remarks = nullptr;          // kRemarkKinds of them, likewise; null: nobody asks
  int32_t op = 0;                         // of the kernel, in that record
  uint64_t timeout_ns = 600'000'000'000;  // of each wait
  // Pinned host memory laid out as ControlPage: the host's abort word and sent(e). Null: nobody aborts from the host,
  // and there is one node.
  std::byte* control_page = nullptr;
  // Pinned host memory. Without entries where there is one node.
  RingMemory rings[kRings] = {};
  const TraceView* trace = nullptr;  // looked at when a kernel is launched; for as many CTAs as the rank has SMs
  RingMemory arrivals = {};  // with entries where the proxy announces arrivals and the relay role publishes them
};

}  // namespace tilewire
