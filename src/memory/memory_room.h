// How much memory a process can still take. Asked before memory is committed, because a machine or container that runs
// out answers with a kill, not with an error.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace tilewire {

struct MemoryRoom {
  int64_t bytes = std::numeric_limits<int64_t>::max();  // what can be taken now, as far as can be known
  std::string limit = "no known limit";                 // what says so: "memory.max of /sys/fs/cgroup/job"
};

// The least of: memory and swap that are free or easily freed, and what the control groups (version 1 and 2) of this
// process and their parents leave. Never throws for files that are missing or odd: they set no limit.
// The folders are those of the kernel except in tests.
MemoryRoom memory_room(const std::string& proc_folder = "/proc", const std::string& cgroup_folder = "/sys/fs/cgroup");

// Throws Error(resource) when `bytes` more do not fit. `where`: "rank 3, arena".
void check_memory_room(int64_t bytes, const std::string& where, const MemoryRoom& room);

}  // namespace tilewire
