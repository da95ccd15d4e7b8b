// What lies where in one rank's arena: not bytes but which data they are. Ranges of one content are one segment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"

namespace tilewire {

// Which data a range of bytes is: the bytes of chunk `chunk` of `source` from `offset_bytes` on. Families keep kinds of
// data of one op apart.
struct Content {
  int32_t family = 0;
  Rank source;
  int32_t chunk = 0;
  int64_t offset_bytes = 0;
};

inline constexpr int32_t kRecordFamily = 15;  // call records

// A content of one call without its offset, in 64 bits. 0 = never written.
using ContentKey = uint64_t;

constexpr ContentKey content_key(const Content& c, int32_t call) {
  return (static_cast<uint64_t>(call + 1) << 48) | (static_cast<uint64_t>(c.family) << 44) |
         (static_cast<uint64_t>(c.source.value) << 32) | static_cast<uint32_t>(c.chunk);
}
constexpr int32_t call_of(ContentKey key) { return static_cast<int32_t>(key >> 48) - 1; }
// "chunk 3 of rank 1, call 17" where the run's first call is `first`.
std::string content_text(ContentKey key, Epoch first);

struct Segment {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t origin = 0;  // address at which the content's first byte would lie
  ContentKey content = 0;
  ContentKey previous = 0;  // what was replaced by it
  int32_t writer = -1;      // rank that brought it here
};

// One address range. Copyable. Not thread-safe.
class ShadowMemory {
 public:
  // Bytes [begin, end) become `content`, whose first byte would lie at `origin`. Nothing for an empty range.
  void write(const Segment& what);
  // Whether every byte of [begin, end) is that content in that place; if so, `writer` is who brought the first byte.
  bool holds(int64_t begin, int64_t end, ContentKey content, int64_t origin, int32_t& writer) const;
  // The segments that overlap [begin, end), cut to it; gaps are segments of content 0.
  void collect(int64_t begin, int64_t end, std::vector<Segment>& out) const;

  const std::vector<Segment>& segments() const { return segments_; }

 private:
  size_t first_behind(int64_t address) const;

  std::vector<Segment> segments_;  // by address, without overlap
};

}  // namespace tilewire
