// Where the kernels of a rank note what they do, and the notes.
#pragma once

#include "device/sync/noted_works.h"
#include "device_buffer.cuh"
#include "gpu_program.cuh"

#include <cstdint>

namespace tilewire {

class TraceBuffer {
 public:
  TraceBuffer(int32_t ctas, uint32_t capacity)
      : capacity_(capacity), notes_(int64_t{ctas} * kTracePlaces * capacity), counts_(int64_t{ctas} * kTracePlaces) {
    clear();
  }

  TraceView view() const { return {notes_.data(), counts_.data(), capacity_}; }
  void clear() {
    notes_.fill_bytes(0);
    counts_.fill_bytes(0);
  }
  NotedWorks noted() const { return noted_works(notes_.to_host(), counts_.to_host(), capacity_); }

 private:
  uint32_t capacity_;
  DeviceBuffer<TraceNote> notes_;
  DeviceBuffer<uint32_t> counts_;
};

inline void expect_in_order(const NotedWorks& found) {
  bool is_in_order = true;
  for (const NotedWork& n : found.works) {
    is_in_order = is_in_order && n.note.t_wait_ns > 0 && n.note.t_wait_ns <= n.note.t_begin_ns &&
                  n.note.t_begin_ns <= n.note.t_end_ns;
  }
  expect(is_in_order, "each note waits, begins and ends");
}

}  // namespace tilewire
