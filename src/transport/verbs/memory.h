// What a rank has registered with its device, and the keys that open the arenas of others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "memory/mapping.h"
#include "memory/nic_access.h"
#include "transport/bootstrap/byte_codec.h"
#include "transport/snapshot_list.h"
#include "transport/verbs/handles.h"

namespace tilewire::verbs {

// Part of an arena, [begin, end) in offsets, and the key that opens it: local for the own one, remote for a peer's.
struct MemoryKey {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint32_t key = 0;

  friend bool operator==(const MemoryKey&, const MemoryKey&) = default;
};

void write_keys(ByteWriter& writer, const std::vector<MemoryKey>& keys);
std::vector<MemoryKey> read_keys(ByteReader& reader);
// The keys alone, of ranges that were registered later.
Bytes pack_keys(const std::vector<MemoryKey>& keys);
std::vector<MemoryKey> unpack_keys(std::span<const std::byte> bytes);

// Thread-safety: find() from any thread without a lock, also while the others run; those by one thread at a time.
class KeyTable {
 public:
  void add(const MemoryKey& key);
  // Takes out what begins there, which must be in it; returns its key.
  uint32_t remove(uint64_t begin);
  // The key for the byte at `offset`, or null.
  const MemoryKey* find(uint64_t offset) const;

 private:
  SnapshotList<MemoryKey> keys_;  // sorted, apart
};

// The pages of that size that hold those bytes: a dma-buf is of whole ones of the host's.
ArenaRange whole_pages(uint64_t begin, uint64_t bytes, uint64_t page_bytes);

struct MemoryPiece {
  std::byte* begin = nullptr;
  uint64_t bytes = 0;
  bool is_relaxed =
      false;  // bytes may become visible in any order until a completion of the receiver says all are here
  const NicAccess* gpu = nullptr;  // of GPU memory
  uint64_t offset = 0;             // of its first byte in the arena
};

// Registers memory for RDMA writes from and into it; GPU memory by a dma-buf or, where that fails, by its address, which
// a peer-memory module has to know. Throws Error(resource) with the bytes and the limit that is in the way, for GPU memory
// with what was wrong with either way; `where` names rank and use.
Mr register_memory(const Verbs& verbs, abi::Pd* pd, const MemoryPiece& piece, const std::string& where);

// Memory of the transport's own for credits, values and probes: shared, so that a fork leaves it where it is, zeroed and
// registered.
class ScratchMemory {
 public:
  ScratchMemory() = default;
  // Throws Error(resource).
  ScratchMemory(const Verbs& verbs, abi::Pd* pd, uint64_t bytes, const std::string& where);

  std::byte* base() const { return memory_.base(); }
  uint32_t lkey() const { return mr_->lkey; }
  uint32_t rkey() const { return mr_->rkey; }
  void reset() noexcept {
    mr_.reset();
    memory_.reset();
  }

 private:
  Mapping memory_;
  Mr mr_;
};

}  // namespace tilewire::verbs
