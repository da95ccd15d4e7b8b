// The arena in host memory that processes share: an anonymous memory file (memfd), sparse over the whole reserved
// range. Its descriptor travels to peers over a Unix socket; it has no name in any file system, so a crash leaves
// nothing.
#pragma once

#include <vector>

#include "memory/arena.h"
#include "memory/mapping.h"

namespace tilewire {

class MemfdArena final : public Arena {
 public:
  // Reserves the range and commits the first memory. The flag area is zero.
  // Throws Error(resource) naming bytes, limit and option when address space, memory or descriptors do not suffice.
  explicit MemfdArena(const ArenaConfig& config);
  ~MemfdArena() override;

  // The one descriptor that peers map; the arena keeps it. -1 after close().
  int export_fd() const { return fd_.get(); }
  using Arena::map_peer;
  // Maps the whole arena of `p`, which has the same layout.
  void map_peer(Rank p, UniqueFd fd);

 private:
  void commit(ArenaRange range) override;
  void uncommit(ArenaRange range) noexcept override;
  void map_peer_range(Rank p, ArenaRange range, UniqueFd fd) override;
  void unmap_peers() noexcept override;
  void close_exports() noexcept override;
  void unmap_own() noexcept override;

  UniqueFd fd_;
  Mapping own_;
  std::vector<Mapping> peers_;
};

}  // namespace tilewire
