// What a kernel notes of a piece of work while it is traced, and where; the host makes TraceEvents of it.
#pragma once

#include <cstdint>

#include "schedule/trace_event.h"

namespace tilewire {

// Times are those of the GPU's global timer.
struct TraceNote {
  uint64_t t_wait_ns = 0;   // the wait begins
  uint64_t t_begin_ns = 0;  // the work begins
  uint64_t t_end_ns = 0;
  int64_t work = -1;  // as that of TraceEvent
  int32_t source = -1;
  uint32_t bytes = 0;
  int32_t op = 0;  // as in a fault record, as the next
  uint8_t role = 0;
  TraceLink link = TraceLink::none;
};

// Who notes in a CTA: its lanes.
enum class TracePlace : int32_t { first_group, second_group, copies, send };
constexpr int32_t kTracePlaces = 4;

// A kernel parameter. Null: nothing is noted, and a piece of work costs one comparison.
struct TraceView {
  TraceNote* notes = nullptr;  // [CTAs x kTracePlaces][capacity] in device memory
  uint32_t* counts = nullptr;  // [CTAs x kTracePlaces], also of those that had no room
  uint32_t capacity = 0;
  int32_t op = 0;
};

}  // namespace tilewire
