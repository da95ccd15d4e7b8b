// Where the kernels of a rank note what they do, and the notes.
#pragma once

#include "device/sync/trace_note.h"
#include "device_buffer.cuh"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tilewire {

struct NotedWork {
  TraceNote note;
  int32_t cta = 0;
};

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
  // Those that had room.
  std::vector<NotedWork> notes() const {
    const std::vector<TraceNote> all = notes_.to_host();
    const std::vector<uint32_t> counts = counts_.to_host();
    std::vector<NotedWork> found;
    for (size_t lane = 0; lane < counts.size(); ++lane) {
      for (uint32_t i = 0; i < std::min(counts[lane], capacity_); ++i) {
        found.push_back({all[lane * capacity_ + i], static_cast<int32_t>(lane) / kTracePlaces});
      }
    }
    return found;
  }
  int64_t dropped() const {
    int64_t sum = 0;
    for (const uint32_t count : counts_.to_host()) sum += count > capacity_ ? count - capacity_ : 0;
    return sum;
  }

 private:
  uint32_t capacity_;
  DeviceBuffer<TraceNote> notes_;
  DeviceBuffer<uint32_t> counts_;
};

}  // namespace tilewire
