// What of a rank's Schedule follows from where rows are and what they see: for one problem, or made again for each call in
// the same memory. Host only.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/attention/problem.h"
#include "ops/attention/schedule.h"

namespace tilewire::attention {

class SightTables {
 public:
  // Of the problem's own queries and all keys, as the other fields of `s` cut them. `s` points into this then.
  void settle(const Problem& problem, Schedule& s);
  // Makes `s` point into this.
  void point(Schedule& s) const;
  int64_t bytes() const;

  // What each own query sees, and where each key of all ranks is.
  const std::vector<KeySpan>& query_spans() const { return query_spans_; }
  const std::vector<int64_t>& key_positions() const { return key_positions_; }

 private:
  void set_keys(const Problem& problem, const Schedule& s);
  void set_queries(const Problem& problem, const Schedule& s);
  void set_wanted(const Problem& problem, const Schedule& s);
  void set_tiles(const Schedule& s);

  std::vector<KeySpan> query_spans_;
  std::vector<int64_t> key_positions_;
  std::vector<uint8_t> wanted_;
  std::vector<SpanBounds> tile_spans_;
  std::vector<KeyBounds> block_keys_;
  std::vector<PositionRun> block_runs_;  // of block after block
  std::vector<size_t> first_run_;        // [blocks + 1]
  std::vector<BlockRange> tile_blocks_;
  std::vector<int32_t> tile_order_;
  std::vector<double> tile_work_;
};

}  // namespace tilewire::attention
