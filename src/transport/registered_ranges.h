// Which parts of the arena a transport may touch. Ranks register the same ranges, so the list also says what may be
// written at a peer.
//
// Thread-safety: all methods from any thread; has() takes no lock.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "transport/snapshot_list.h"
#include "transport/transport.h"

namespace tilewire {

class RegisteredRanges {
 public:
  // Throws Error(invalid_argument) when the range is not inside an arena of `arena_bytes`.
  void add(uint64_t begin, uint64_t bytes, uint64_t arena_bytes);
  // Takes [begin, begin + bytes) out again, all of which add() has put there.
  void remove(uint64_t begin, uint64_t bytes);
  // Whether all of [begin, begin + bytes) is registered; neighbouring ranges count as one.
  bool has(uint64_t begin, uint64_t bytes) const;

 private:
  struct Range {
    uint64_t begin;
    uint64_t end;
  };

  std::mutex mutex_;            // of add() and remove(): one at a time
  SnapshotList<Range> ranges_;  // sorted, apart
};

// For back ends: throws Error(invalid_argument) that names the field when the transport cannot do what is asked or a
// range is not registered.
void check_request(const WriteRequest& request, const Caps& caps, const RegisteredRanges& ranges,
                   const std::string& where);

}  // namespace tilewire
