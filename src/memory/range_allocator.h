// Hands out byte ranges of an area that grows at its end: first fit, neighbours that are free are joined.
//
// Thread-safety: as an int.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace tilewire {

class RangeAllocator {
 public:
  // Ranges begin and end at multiples of this, so that neighbours share no cache line.
  static constexpr int64_t kGranuleBytes = 256;

  // Appends free bytes up to a total of `size_bytes`; a smaller value changes nothing.
  void grow(int64_t size_bytes);

  // Offset of `bytes` free bytes at a multiple of `alignment` (a power of two), or nothing when there is no room. A
  // range of 0 bytes takes a granule, so that no two allocations have one offset.
  std::optional<int64_t> allocate(int64_t bytes, int64_t alignment);
  // False when `offset` is not the beginning of an allocated range; then nothing changes.
  bool free(int64_t offset);

  // The size with which allocate(bytes, alignment) would succeed now.
  int64_t size_for(int64_t bytes, int64_t alignment) const;
  int64_t size_bytes() const { return size_bytes_; }
  int64_t used_bytes() const { return used_bytes_; }
  int64_t largest_free_bytes() const;
  bool is_empty() const { return used_.empty(); }

 private:
  void insert_free(int64_t begin, int64_t bytes);

  int64_t size_bytes_ = 0;
  int64_t used_bytes_ = 0;
  std::map<int64_t, int64_t> free_;  // begin -> bytes; no two touch
  std::map<int64_t, int64_t> used_;  // begin -> bytes
};

}  // namespace tilewire
