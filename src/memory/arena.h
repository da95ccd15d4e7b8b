// The arena of a communicator on one rank: the memory that peers write into. Where things lie in it is fixed at
// creation (see schedule/arena_layout.h); physical memory is appended by grow() and never moves.
//
// This class keeps the books: what is committed, what the NIC has to register, who got which part of the user area.
// What the memory is made of is a subclass: host memory shared between processes (MemfdArena), plain memory shared
// between threads (ThreadArena), GPU memory shared between processes (CudaArena).
//
// Thread-safety: base, peer, layout and rank may be called from any thread at any time before close(); allocate_user,
// free_user and user_bytes_for from any thread at any time; everything else by one thread while no call is in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/unique_fd.h"
#include "memory/range_allocator.h"
#include "schedule/arena_layout.h"

namespace tilewire {

// Bytes [begin, begin + bytes) from the base of an arena; whole pages of its memory (Arena::page_bytes).
struct ArenaRange {
  int64_t begin_bytes = 0;
  int64_t bytes = 0;

  friend bool operator==(const ArenaRange&, const ArenaRange&) = default;
};

// A piece of the arena as a peer maps it. The arena owns the descriptor.
struct ArenaExport {
  ArenaRange range;
  int fd = -1;
};

class NicAccess;  // memory/nic_access.h

struct ArenaConfig {
  Rank rank;
  ArenaLayout layout;
  int64_t half_bytes = 0;  // committed at creation, of each half; rounded up to pages
  int64_t user_bytes = 0;  // committed at creation, of the user area; rounded up to pages
};

class Arena {
 public:
  virtual ~Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Rank rank() const { return rank_; }
  const ArenaLayout& layout() const { return layout_; }
  // First byte of the own arena, here. Only a GPU may touch it when is_host_accessible() is false.
  std::byte* base() const { return base_; }
  virtual bool is_host_accessible() const { return true; }
  // The control page (abort word, bell, `sent`) that the host side of this rank uses: what memory/words.h calls `base`
  // in its functions for these. The first page of base() where the host can touch it, else a page of its own.
  std::byte* control() const { return control_; }
  // Memory is committed in multiples of this.
  int64_t page_bytes() const { return page_bytes_; }
  // How network cards reach the arena; nullptr where it is plain host memory. Lives no longer than the arena.
  virtual std::shared_ptr<const NicAccess> nic_access() const { return nullptr; }
  // First byte of the arena of `p`, here; nullptr for a rank whose memory is not mapped (another node). The own rank
  // gives base().
  std::byte* peer(Rank p) const;

  // Committed bytes of each half and of the user area.
  int64_t half_bytes() const { return half_bytes_; }
  int64_t user_bytes() const { return user_bytes_; }
  // Appends physical memory until each half and the user area have at least these bytes; smaller values change nothing.
  // No address changes. All ranks call it with the same values, between calls; agreeing is the caller's business, and
  // so is to map, on each peer, exports() that are new. Throws Error(resource) with the bytes asked, the limit and the
  // option that sets it; then nothing has changed.
  void grow(int64_t half_bytes, int64_t user_bytes);

  // What the NIC must register, in the order in which it came: flag area, halves, user area. Growth only appends.
  std::span<const ArenaRange> ranges() const { return ranges_; }
  // What peers must map, in the order in which it came. Growth only appends. Host memory has one for the whole arena;
  // threads of one process have none.
  std::span<const ArenaExport> exports() const { return exports_; }
  // Maps a piece of the arena of `p`, received from it. Takes the descriptor in any case.
  // Throws Error(mismatch) when it is not the memory that was said, Error(resource) when it cannot be mapped.
  void map_peer(Rank p, ArenaRange range, UniqueFd fd);

  // `bytes` (0 is fine) of the own user area at a multiple of `alignment`, a power of two up to 4096. First fit; ranks
  // need not ask for the same. Contents are undefined.
  // Throws Error(resource) when the committed user area has no room for it: see user_bytes_for.
  std::byte* allocate_user(int64_t bytes, int64_t alignment = kUserAlignmentBytes);
  // Gives back what allocate_user returned; legal after close() too. Throws Error(invalid_argument) for anything else.
  void free_user(std::byte* pointer);
  // What user_bytes() has to be for allocate_user(bytes, alignment) to succeed now.
  int64_t user_bytes_for(int64_t bytes, int64_t alignment = kUserAlignmentBytes) const;
  // Offset from base() when `pointer` lies in the committed part of the own user area, else -1.
  int64_t user_area_offset(const void* pointer) const;

  // Unmaps peers and closes descriptors, without any help of a peer. The own memory goes at once, or with the last
  // free_user() when some of the user area is still handed out (a tensor may outlive its communicator), at the latest
  // with the object. Idempotent.
  void close() noexcept;
  bool is_closed() const;

  static constexpr int64_t kUserAlignmentBytes = 256;

 protected:
  static constexpr int64_t kHostPageBytes = 4096;

  // Throws Error(resource) when the layout does not fit the wire, Error(invalid_argument) when it makes no sense or its
  // strides are not multiples of `page_bytes`, Error(unavailable) when that is no divisor of
  // ArenaLayout::kAreaAlignmentBytes.
  explicit Arena(const ArenaConfig& config, int64_t page_bytes = kHostPageBytes);

  // A subclass ends its constructor with start(): `base` is the reserved range. Commits the flag area and the first
  // bytes of the others. Throws as grow() does. `control`: see control(); nullptr for base.
  void start(std::byte* base, const ArenaConfig& config, std::byte* control = nullptr);
  // A subclass' destructor begins with finish(): close(), and whatever is still mapped goes.
  void finish() noexcept;
  // For start() and commit(): more exports.
  void add_export(ArenaExport e) { exports_.push_back(e); }
  // For uncommit(): the export of a range that is gone.
  void drop_export(ArenaRange range) noexcept;
  void set_peer(Rank p, std::byte* base);
  // "rank 3, arena": for errors.
  std::string where() const;

 private:
  // Makes the range usable, zero-filled, or throws Error(resource) with nothing changed.
  virtual void commit(ArenaRange range) = 0;
  // Takes back what commit() made.
  virtual void uncommit(ArenaRange range) noexcept = 0;
  // Maps and calls set_peer.
  virtual void map_peer_range(Rank p, ArenaRange range, UniqueFd fd) = 0;
  virtual void unmap_peers() noexcept = 0;
  // Gives up the own memory and descriptors.
  virtual void close_exports() noexcept = 0;
  virtual void unmap_own() noexcept = 0;

  void release_own() noexcept;
  void check_growth(int64_t half_bytes, int64_t user_bytes) const;

  Rank rank_;
  ArenaLayout layout_;
  int64_t page_bytes_;
  std::byte* base_ = nullptr;
  std::byte* control_ = nullptr;
  std::vector<std::byte*> peers_;
  int64_t half_bytes_ = 0;
  int64_t user_bytes_ = 0;
  std::vector<ArenaRange> ranges_;
  std::vector<ArenaExport> exports_;
  mutable std::mutex user_mutex_;  // guards what follows
  RangeAllocator user_;
  bool is_closed_ = false;
  bool is_unmapped_ = false;
};

}  // namespace tilewire
