#include "schedule/simulator/shadow_memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace tilewire {

std::string content_text(ContentKey key, Epoch first) {
  if (key == 0) return "nothing";
  const int family = static_cast<int>((key >> 44) & 15);
  const int source = static_cast<int>((key >> 32) & 0xfff);
  const Epoch epoch = first + static_cast<Epoch>(call_of(key));
  if (family == kRecordFamily) return fmt::format("the record of rank {}, call {}", source, epoch);
  return fmt::format("chunk {} of rank {} (family {}), call {}", static_cast<int32_t>(key & 0xffffffffu), source,
                     family, epoch);
}

// Index of the first segment that ends behind `address`.
size_t ShadowMemory::first_behind(int64_t address) const {
  const auto it = std::upper_bound(segments_.begin(), segments_.end(), address,
                                   [](int64_t a, const Segment& s) { return a < s.end; });
  return static_cast<size_t>(it - segments_.begin());
}

void ShadowMemory::write(const Segment& what) {
  if (what.begin >= what.end) return;
  size_t at = first_behind(what.begin);
  if (at < segments_.size() && segments_[at].begin == what.begin && segments_[at].end == what.end) {
    Segment& old = segments_[at];
    const ContentKey previous = old.content;
    old = what;
    old.previous = previous;
    return;
  }
  Segment fresh = what;
  fresh.previous = 0;
  // Cut what sticks out on the left, drop what is covered, cut what sticks out on the right.
  if (at < segments_.size() && segments_[at].begin < what.begin) {
    const Segment old = segments_[at];
    fresh.previous = old.content;
    segments_[at].end = what.begin;
    ++at;
    if (old.end > what.end) {
      Segment right = old;
      right.begin = what.end;
      segments_.insert(segments_.begin() + static_cast<ptrdiff_t>(at), right);
    }
  }
  size_t last = at;
  while (last < segments_.size() && segments_[last].end <= what.end) {
    if (fresh.previous == 0) fresh.previous = segments_[last].content;
    ++last;
  }
  if (last < segments_.size() && segments_[last].begin < what.end) {
    if (fresh.previous == 0) fresh.previous = segments_[last].content;
    segments_[last].begin = what.end;
  }
  if (last > at) {
    segments_[at] = fresh;
    segments_.erase(segments_.begin() + static_cast<ptrdiff_t>(at) + 1,
                    segments_.begin() + static_cast<ptrdiff_t>(last));
  } else {
    segments_.insert(segments_.begin() + static_cast<ptrdiff_t>(at), fresh);
  }
}

bool ShadowMemory::holds(int64_t begin, int64_t end, ContentKey content, int64_t origin, int32_t& writer) const {
  const int64_t first = begin;
  for (size_t at = first_behind(begin); begin < end; ++at) {
    if (at == segments_.size()) return false;
    const Segment& s = segments_[at];
    if (s.begin > begin || s.content != content || s.origin != origin) return false;
    if (begin == first) writer = s.writer;
    begin = s.end;
  }
  return true;
}

void ShadowMemory::collect(int64_t begin, int64_t end, std::vector<Segment>& out) const {
  for (size_t at = first_behind(begin); begin < end; ++at) {
    if (at == segments_.size() || segments_[at].begin >= end) {
      out.push_back({.begin = begin, .end = end});
      return;
    }
    Segment s = segments_[at];
    if (s.begin > begin) out.push_back({.begin = begin, .end = s.begin});
    s.begin = std::max(s.begin, begin);
    s.end = std::min(s.end, end);
    begin = s.end;
    out.push_back(s);
  }
}

}  // namespace tilewire
