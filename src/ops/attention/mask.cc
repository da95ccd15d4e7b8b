#include "ops/attention/mask.h"

#include <algorithm>

namespace tilewire::attention {
namespace {

constexpr int64_t kEverywhere = INT64_MAX / 2;

KeySpan causal_end(KeySpan document, int64_t last_seen) {
  document.end = std::clamp(last_seen + 1, document.begin, document.end);
  return document;
}

}  // namespace

KeySpan MaskRule::span_of(int64_t position) const {
  if (query_begins.empty()) {
    return is_causal ? causal_end({0, kEverywhere}, position + causal_offset) : KeySpan{0, kEverywhere};
  }
  const auto behind = std::upper_bound(query_begins.begin(), query_begins.end(), position);
  if (behind == query_begins.end() || behind == query_begins.begin()) return {};
  const auto d = static_cast<size_t>(behind - query_begins.begin() - 1);
  const KeySpan document{key_begins[d], key_begins[d + 1]};
  if (!is_causal) return document;
  return causal_end(document, document.end - (query_begins[d + 1] - position));
}

std::vector<KeySpan> MaskRule::seen_by(const Positions& queries) const {
  std::vector<KeySpan> spans;
  for (const PositionRun& run : queries) {
    // Of a run in one document the last row sees the most: neighbours are joined as they come.
    for (int64_t i = 0; i < run.count; ++i) {
      const KeySpan s = span_of(run.begin + i);
      if (s.is_empty()) continue;
      if (!spans.empty() && spans.back().begin <= s.begin && s.begin <= spans.back().end) {
        spans.back().end = std::max(spans.back().end, s.end);
      } else {
        spans.push_back(s);
      }
    }
  }
  std::sort(spans.begin(), spans.end(), [](KeySpan a, KeySpan b) { return a.begin < b.begin; });
  std::vector<KeySpan> joined;
  for (const KeySpan s : spans) {
    if (!joined.empty() && s.begin <= joined.back().end) {
      joined.back().end = std::max(joined.back().end, s.end);
    } else {
      joined.push_back(s);
    }
  }
  return joined;
}

bool is_seen(const std::vector<KeySpan>& stretches, PositionRun keys) {
  // The first stretch that ends behind the first key.
  const auto at = std::upper_bound(stretches.begin(), stretches.end(), keys.begin,
                                   [](int64_t begin, KeySpan s) { return begin < s.end; });
  return at != stretches.end() && at->begin < keys.begin + keys.count;
}

}  // namespace tilewire::attention
