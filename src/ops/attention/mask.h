// Who sees what: the keys of a row are those of one stretch of the whole key sequence, which follows from the row's own
// position alone. Causal masks, documents and pads are nothing else.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "ops/attention/positions.h"

namespace tilewire::attention {

// Positions of keys, from begin up to end.
struct KeySpan {
  int64_t begin = 0;
  int64_t end = 0;
  TILEWIRE_HD constexpr bool is_empty() const { return end <= begin; }
  TILEWIRE_HD constexpr bool holds(int64_t position) const { return begin <= position && position < end; }
};

// The spans of some rows together: what any of them sees lies in `any`, what all of them see is `all`.
struct SpanBounds {
  KeySpan any{INT64_MAX, INT64_MIN};
  KeySpan all{INT64_MIN, INT64_MAX};
  TILEWIRE_HD constexpr void add(KeySpan s) {
    if (s.begin > all.begin) all.begin = s.begin;
    if (s.end < all.end) all.end = s.end;
    if (s.is_empty()) return;
    if (s.begin < any.begin) any.begin = s.begin;
    if (s.end > any.end) any.end = s.end;
  }
};

// The positions of some keys together.
struct KeyBounds {
  int64_t least = INT64_MAX;
  int64_t most = INT64_MIN;
  TILEWIRE_HD constexpr void add(int64_t position) {
    if (position < least) least = position;
    if (position > most) most = position;
  }
};

// Whether some row may see some key; that none does is sure.
TILEWIRE_HD constexpr bool may_meet(const SpanBounds& rows, const KeyBounds& keys) {
  return keys.most >= rows.any.begin && keys.least < rows.any.end;
}
// Whether every row sees every key.
TILEWIRE_HD constexpr bool all_meet(const SpanBounds& rows, const KeyBounds& keys) {
  return keys.least >= rows.all.begin && keys.most < rows.all.end;
}

// Documents lie one behind the other in both sequences, as cu_seqlens says: the first one begins at 0, number d ends
// where d + 1 begins. What is behind the last one are pads: they see nothing, and nobody sees them. Without documents
// the whole is one.
struct MaskRule {
  bool is_causal = false;
  std::vector<int64_t> query_begins{};  // [documents + 1], or empty
  std::vector<int64_t> key_begins{};    // [documents + 1], or empty
  int64_t causal_offset = 0;            // without documents: keys less queries

  // What the query at that position sees. Where causal, the last query of a document sees its last key.
  KeySpan span_of(int64_t position) const;
  // Whether it is behind the last document.
  bool is_pad_key(int64_t position) const { return !key_begins.empty() && position >= key_begins.back(); }
  // Stretches of keys that some of these rows see, in order, without touching ones.
  std::vector<KeySpan> seen_by(const Positions& queries) const;
};

// Whether a key of the run is in one of the stretches, which are in order.
bool is_seen(const std::vector<KeySpan>& stretches, PositionRun keys);

}  // namespace tilewire::attention
