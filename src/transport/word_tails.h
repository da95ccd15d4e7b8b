// after_completion: the last of the requests in hand that are for one word, of each word that has any. A table of fixed
// size, since commands come and go all the time.
//
// Thread-safety: one thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace tilewire {

class WordTails {
 public:
  // For so many words at once.
  explicit WordTails(size_t most) : entries_(std::bit_ceil(2 * most + 1)) {}

  // From now on `slot` is the last one; returns which was.
  std::optional<uint32_t> put(Rank peer, uint32_t word, uint32_t slot) {
    Entry& entry = entries_[place_of(key_of(peer, word))];
    const bool is_new = entry.key == kNone;
    entry.key = key_of(peer, word);
    const uint32_t before = std::exchange(entry.slot, slot);
    return is_new ? std::nullopt : std::optional(before);
  }
  // There is none any more.
  void erase(Rank peer, uint32_t word) {
    size_t hole = place_of(key_of(peer, word));
    // Those behind it that would lie here move up, so that no search ends at the hole.
    for (size_t at = next(hole); entries_[at].key != kNone; at = next(at)) {
      const size_t home = home_of(entries_[at].key);
      if (distance(home, at) < distance(hole, at)) continue;
      entries_[hole] = entries_[at];
      hole = at;
    }
    entries_[hole] = {};
  }

 private:
  static constexpr uint64_t kNone = UINT64_MAX;  // no rank is negative
  struct Entry {
    uint64_t key = kNone;
    uint32_t slot = 0;
  };

  static uint64_t key_of(Rank peer, uint32_t word) { return uint64_t{static_cast<uint32_t>(peer.value)} << 32 | word; }
  size_t next(size_t at) const { return (at + 1) & (entries_.size() - 1); }
  size_t distance(size_t from, size_t to) const { return (to - from) & (entries_.size() - 1); }
  size_t home_of(uint64_t key) const {
    return static_cast<size_t>((key * 0x9e3779b97f4a7c15u) >> 32) & (entries_.size() - 1);
  }
  // Where it is, or else belongs.
  size_t place_of(uint64_t key) const {
    size_t at = home_of(key);
    while (entries_[at].key != kNone && entries_[at].key != key) at = next(at);
    return at;
  }

  std::vector<Entry> entries_;  // twice as many as there can be, so that there is always an empty one
};

}  // namespace tilewire
