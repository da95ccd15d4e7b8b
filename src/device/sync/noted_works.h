// The notes of a rank's kernels, as the host reads them from copies of the memory behind a TraceView. Host code.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "device/sync/trace_note.h"

namespace tilewire {

struct NotedWork {
  TraceNote note;
  int32_t cta = 0;
  TracePlace place{};
};

struct NotedWorks {
  std::vector<NotedWork> works;
  int64_t dropped = 0;  // had no room
};

// `notes` and `counts` as TraceView has them.
inline NotedWorks noted_works(std::span<const TraceNote> notes, std::span<const uint32_t> counts, uint32_t capacity) {
  NotedWorks found;
  for (size_t lane = 0; lane < counts.size(); ++lane) {
    const uint32_t kept = std::min(counts[lane], capacity);
    found.dropped += counts[lane] - kept;
    for (uint32_t i = 0; i < kept; ++i) {
      found.works.push_back({notes[lane * capacity + i], static_cast<int32_t>(lane) / kTracePlaces,
                             static_cast<TracePlace>(lane % kTracePlaces)});
    }
  }
  return found;
}

}  // namespace tilewire
