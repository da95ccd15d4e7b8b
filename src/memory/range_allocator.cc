#include "memory/range_allocator.h"

#include <algorithm>
#include <iterator>

#include "base/bytes.h"

namespace tilewire {
namespace {

// What a range of `bytes` takes. The caller keeps `bytes` far below the end of 64 bits.
int64_t footprint(int64_t bytes) { return round_up(std::max<int64_t>(bytes, 1), RangeAllocator::kGranuleBytes); }

int64_t aligned(int64_t begin, int64_t alignment) {
  return round_up(begin, std::max(alignment, RangeAllocator::kGranuleBytes));
}

}  // namespace

void RangeAllocator::grow(int64_t size_bytes) {
  if (size_bytes <= size_bytes_) return;
  insert_free(size_bytes_, size_bytes - size_bytes_);
  size_bytes_ = size_bytes;
}

void RangeAllocator::insert_free(int64_t begin, int64_t bytes) {
  if (bytes == 0) return;
  const auto next = free_.lower_bound(begin);
  if (next != free_.end() && begin + bytes == next->first) {
    bytes += next->second;
    free_.erase(next);
  }
  const auto after = free_.lower_bound(begin);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      before->second += bytes;
      return;
    }
  }
  free_[begin] = bytes;
}

std::optional<int64_t> RangeAllocator::allocate(int64_t bytes, int64_t alignment) {
  if (bytes > size_bytes_) return std::nullopt;
  const int64_t need = footprint(bytes);
  const auto found = std::find_if(free_.begin(), free_.end(), [&](const auto& run) {
    return aligned(run.first, alignment) + need <= run.first + run.second;
  });
  if (found == free_.end()) return std::nullopt;
  const auto [begin, length] = *found;
  const int64_t at = aligned(begin, alignment);
  free_.erase(found);
  insert_free(begin, at - begin);
  insert_free(at + need, begin + length - (at + need));
  used_[at] = need;
  used_bytes_ += need;
  return at;
}

bool RangeAllocator::free(int64_t offset) {
  const auto found = used_.find(offset);
  if (found == used_.end()) return false;
  used_bytes_ -= found->second;
  insert_free(offset, found->second);
  used_.erase(found);
  return true;
}

int64_t RangeAllocator::size_for(int64_t bytes, int64_t alignment) const {
  const int64_t need = footprint(bytes);
  for (const auto& [begin, length] : free_) {
    if (aligned(begin, alignment) + need <= begin + length) return size_bytes_;
  }
  int64_t tail = size_bytes_;
  if (!free_.empty() && free_.rbegin()->first + free_.rbegin()->second == size_bytes_) tail = free_.rbegin()->first;
  return aligned(tail, alignment) + need;
}

int64_t RangeAllocator::largest_free_bytes() const {
  int64_t largest = 0;
  for (const auto& [begin, length] : free_) largest = std::max(largest, length);
  return largest;
}

}  // namespace tilewire
