// The tables behind a rank's Schedule, and where its buffers lie.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/attention/problem.h"
#include "ops/attention/schedule.h"
#include "planning/plan_parts.h"
#include "schedule/chunk_tables.h"

namespace tilewire::attention {

struct PlanChoice;

// What a plan needs of each half, by agreed values alone.
struct CallLayout {
  int64_t received_begin = 0;
  int64_t slot_bytes = 0;
  int32_t units = 0;
  int64_t slots = 0;
  int64_t end = 0;
};
// Throws Error(resource) when it does not fit 64 bits.
CallLayout layout_of(const Problem& problem, const PlanChoice& choice, const PlanContext& context);

// Keep it as long as a schedule of it is used.
class ScheduleTables {
 public:
  // Of a choice that check_choice() has passed.
  ScheduleTables(const Problem& problem, const PlanChoice& choice, const PlanContext& context);
  // The schedule of call `epoch`.
  Schedule schedule(Epoch epoch) const;

  // What each own query sees, and where each key of all ranks is.
  const std::vector<KeySpan>& query_spans() const { return query_spans_; }
  const std::vector<int64_t>& key_positions() const { return key_positions_; }

 private:
  void set_keys(const Problem& problem);
  void set_queries(const Problem& problem, int32_t tile_rows);
  void set_wanted(const Problem& problem);
  void set_tiles();

  ChunkTables blocks_;
  std::vector<KeySpan> query_spans_;
  std::vector<int64_t> key_positions_;
  std::vector<uint8_t> wanted_;
  std::vector<SpanBounds> tile_spans_;
  std::vector<KeyBounds> block_keys_;
  std::vector<BlockRange> tile_blocks_;
  std::vector<int32_t> tile_order_;
  Schedule schedule_;
};

}  // namespace tilewire::attention
