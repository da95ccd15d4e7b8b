// What a rank has registered of its arena with one device: the ranges, the keys for its own requests, and those that its
// peers have not been told yet.
//
// Thread-safety: add() and untold_keys() from any thread; ranges() and keys() are read without a lock, also meanwhile.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "transport/registered_ranges.h"
#include "transport/transport.h"
#include "transport/verbs/handles.h"
#include "transport/verbs/memory.h"

namespace tilewire::verbs {

class ArenaMemory {
 public:
  // Keeps all of them by reference, `pd` as it is.
  ArenaMemory(const Verbs& verbs, abi::Pd* pd, const TransportContext& context, const std::string& where)
      : verbs_(verbs), pd_(pd), context_(context), where_(where) {}

  // Registers [begin, begin + bytes) of the arena. Throws what register_memory() and RegisteredRanges::add() do.
  void add(uint64_t begin, uint64_t bytes, bool is_relaxed);
  // Remote keys of what has been added since it was last asked.
  std::vector<MemoryKey> untold_keys();

  const RegisteredRanges& ranges() const { return ranges_; }
  const KeyTable& keys() const { return keys_; }
  void reset() noexcept { memory_.clear(); }

 private:
  const Verbs& verbs_;
  abi::Pd* pd_;
  const TransportContext& context_;
  const std::string& where_;
  RegisteredRanges ranges_;
  KeyTable keys_;
  std::mutex mutex_;  // guards the two below
  std::vector<Mr> memory_;
  std::vector<MemoryKey> untold_;
};

}  // namespace tilewire::verbs
