// What a process holds of the machine, as the kernel counts it.
#pragma once

#include <cstdint>
#include <string>

namespace tilewire {

struct ProcessState {
  int64_t descriptors = 0;
  int64_t threads = 0;
  int64_t mappings = 0;
  int64_t arena_mappings = 0;  // of memory files that the library made
  int64_t shared_names = 0;    // of the library in /dev/shm
  int64_t resident_bytes = 0;

  static ProcessState now();
};

// How much a process may grow that leaks nothing: allocators and stack caches keep some.
struct GrowthLimits {
  int64_t mappings = 24;
  int64_t resident_bytes = 24 << 20;
};

// "" when `after` holds no more than `before`, else everything that grew.
std::string growth(const ProcessState& before, const ProcessState& after, const GrowthLimits& limits);

// The growth since `before` that is still there some seconds later: the system lists a thread for a moment after it was
// joined, and other processes have names in /dev/shm too.
std::string lasting_growth(const ProcessState& before, const GrowthLimits& limits);

}  // namespace tilewire
