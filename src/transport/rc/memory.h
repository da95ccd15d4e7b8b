// What a rank has registered with its device, and the keys that open the arenas of others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "memory/mapping.h"
#include "transport/snapshot_list.h"
#include "transport/verbs/handles.h"

namespace tilewire {

// Part of an arena, [begin, end) in offsets, and the key that opens it: local for the own one, remote for a peer's.
struct RcKey {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint32_t key = 0;
};

// Thread-safety: find() from any thread without a lock, also while add() runs; add() by one thread at a time.
class RcKeyTable {
 public:
  void add(const RcKey& key);
  // The key for the byte at `offset`, or null.
  const RcKey* find(uint64_t offset) const;

 private:
  SnapshotList<RcKey> keys_;  // sorted, apart
};

// Registers memory for RDMA writes from and into it. `relaxed`: its bytes may become visible in any order until a
// completion of the receiver says that all are here. Throws Error(resource) with the bytes and the limit that is in the
// way; `where` names rank and use.
verbs::Mr register_memory(const verbs::Verbs& verbs, verbs::abi::Pd* pd, std::byte* begin, uint64_t bytes, bool relaxed,
                          const std::string& where);

// Memory of the transport's own for credits, values and probes: shared, so that a fork leaves it where it is, zeroed and
// registered.
class RcScratch {
 public:
  RcScratch() = default;
  // Throws Error(resource).
  RcScratch(const verbs::Verbs& verbs, verbs::abi::Pd* pd, uint64_t bytes, const std::string& where);

  std::byte* base() const { return memory_.base(); }
  uint32_t lkey() const { return mr_->lkey; }
  uint32_t rkey() const { return mr_->rkey; }
  void reset() noexcept {
    mr_.reset();
    memory_.reset();
  }

 private:
  Mapping memory_;
  verbs::Mr mr_;
};

}  // namespace tilewire
