#include "transport/verbs/arena_memory.h"

#include <utility>

namespace tilewire::verbs {

void ArenaMemory::add(uint64_t begin, uint64_t bytes, bool is_relaxed) {
  if (bytes == 0) return;
  Mr memory = register_memory(verbs_, pd_,
                              {.begin = context_.arena + begin,
                               .bytes = bytes,
                               .is_relaxed = is_relaxed,
                               .gpu = context_.gpu_memory.get(),
                               .offset = begin},
                              where_);
  ranges_.add(begin, bytes, context_.arena_bytes);
  const std::lock_guard lock(mutex_);
  keys_.add({begin, begin + bytes, memory->lkey});
  untold_.push_back({begin, begin + bytes, memory->rkey});
  memory_.push_back(std::move(memory));
}

std::vector<MemoryKey> ArenaMemory::untold_keys() {
  const std::lock_guard lock(mutex_);
  return std::exchange(untold_, {});
}

}  // namespace tilewire::verbs
