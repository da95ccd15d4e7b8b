// What a rank has registered of its arena with one device: the ranges, the keys for its own requests, and those that its
// peers have not been told yet. And what it knows of the arenas of those.
//
// Thread-safety: add(), remove() and untold_keys() from any thread, PeerArena::learn() by one thread at a time; what cut()
// reads of all that it reads without a lock, also meanwhile.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "transport/registered_ranges.h"
#include "transport/transport.h"
#include "transport/verbs/handles.h"
#include "transport/verbs/memory.h"
#include "transport/verbs/pieces.h"

namespace tilewire::verbs {

// The arena of another rank.
struct PeerArena {
  bool is_peer = false;
  uint64_t address = 0;  // there, of offset 0
  KeyTable keys{};

  void learn(const std::vector<MemoryKey>& more) {
    for (const MemoryKey& key : more) keys.add(key);
  }
};

class ArenaMemory {
 public:
  // Keeps all of them by reference, `pd` as it is.
  ArenaMemory(const Verbs& verbs, abi::Pd* pd, const TransportContext& context, const std::string& where)
      : verbs_(verbs), pd_(pd), context_(context), where_(where) {}

  // Registers [begin, begin + bytes) of the arena. Throws what register_memory() and RegisteredRanges::add() do.
  void add(uint64_t begin, uint64_t bytes, bool is_relaxed);
  // Takes back what add() did with just that range, whose key nobody has been told.
  void remove(uint64_t begin, uint64_t bytes);
  // Remote keys of what has been added since it was last asked.
  std::vector<MemoryKey> untold_keys();

  // Checks a request and cuts it into `pieces`, as cut_request() does. Throws Error(invalid_argument) where `peer` is none
  // and as check_request() and cut_request() do.
  void cut(const WriteRequest& request, const PeerArena* peer, const Caps& caps, uint64_t most_bytes,
           std::vector<Piece>& pieces) const;
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

// As Transport::learn_keys(): `arena_of` a peer is its PeerArena.
template <class ArenaOf>
void learn_keys_of_peers(std::span<const std::vector<std::byte>> by_rank, const TransportContext& context,
                         ArenaOf&& arena_of) {
  TILEWIRE_CHECK_EQ(by_rank.size(), static_cast<size_t>(context.ranks), ErrorKind::invalid_argument,
                    "keys of every rank");
  for (const Rank rank : context.peers) arena_of(rank).learn(unpack_keys(by_rank[static_cast<size_t>(rank.value)]));
}

}  // namespace tilewire::verbs
