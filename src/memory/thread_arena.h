// The arena for ranks that are threads of one process, in plain memory: a race detector sees every access of every
// rank.
#pragma once

#include <memory>
#include <vector>

#include "memory/arena.h"

namespace tilewire {

// The memory of all ranks. Made once, before the threads; each rank then takes its arena from it. The memory of all
// ranks lives until the group and all arenas are gone, so a rank may close while others still write to it.
//
// Thread-safety: arena() and base() may be called from any thread.
class ThreadArenaGroup {
 public:
  // `nodes[r]` is the node of rank r: peer() of an arena gives the ranks of its own node only. `config` is that of
  // every rank, its `rank` is not read. Throws as MemfdArena does.
  ThreadArenaGroup(std::vector<Node> nodes, const ArenaConfig& config);
  ~ThreadArenaGroup();

  int32_t ranks() const;
  // The arena of rank `r`. At most once a rank: throws Error(invalid_argument) for a second time or no such rank.
  std::unique_ptr<Arena> arena(Rank r);
  // Where the arena of `r` lies, whatever its node: for a transport that plays a network between threads.
  std::byte* base(Rank r) const;

  struct Shared;

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace tilewire
