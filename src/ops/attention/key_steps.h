// The keys of all ranks in steps, as a kernel takes them: so many rows of a source at a time, cut from its first row on.
// Host code makes the table, the loader of a kernel walks it.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/attention/rank_schedule.h"

namespace tilewire::attention {

// Where the keys of a step are in the whole sequence. Positions of a kernel have 31 bits.
struct KeyStep {
  int32_t least = 0;
  int32_t most = 0;
  int32_t keys = 0;
  int32_t is_run = 0;  // they follow each other, from `least` on

  TILEWIRE_HD constexpr KeyBounds bounds() const { return {least, most}; }
};

// As a kernel sees the table. Chunks are whole multiples of a step, but for the last one of a source.
struct KeySteps {
  int32_t step_rows = 1;
  const KeyStep* steps = nullptr;       // [steps of all sources]
  const int32_t* step_begin = nullptr;  // [ranks + 1]

  TILEWIRE_HD constexpr const KeyStep& at(Rank source, int64_t row) const {
    return steps[step_begin[source.value] + row / step_rows];
  }
};

class KeyStepTable {
 public:
  // Throws Error(invalid_argument) for positions that have more than 31 bits, and for chunks that are no whole steps.
  KeyStepTable(const Schedule& schedule, int32_t step_rows);
  KeySteps view() const { return {step_rows_, steps_.data(), step_begin_.data()}; }
  const std::vector<KeyStep>& steps() const { return steps_; }

 private:
  int32_t step_rows_;
  std::vector<KeyStep> steps_;
  std::vector<int32_t> step_begin_;
};

// The steps of a tile with the blocks that it looks at of a source: those in which some row sees a key.
class StepWalk {
 public:
  struct Step {
    ChunkRef chunk;   // of the pair
    RowRange rows;    // of the chunk, among those of the source
    int64_t row = 0;  // the first one of the step, likewise
    KeyStep keys;
    bool is_masked = true;
  };

  TILEWIRE_HD constexpr StepWalk(const Schedule& s, const KeySteps& steps, int32_t tile, int32_t pair, Rank source,
                                 BlockRange blocks)
      : s_(s),
        steps_(steps),
        tile_(tile),
        pair_(pair),
        source_(source),
        block_(blocks.first - 1),
        end_(blocks.first + blocks.count) {}

  TILEWIRE_HD constexpr bool next(Step& step) {
    for (;;) {
      if (row_ >= rows_.end && !next_block()) return false;
      step.row = row_;
      step.keys = steps_.at(source_, row_);
      row_ += steps_.step_rows;
      if (!may_meet(s_.tile_spans[tile_], step.keys.bounds())) continue;
      step.chunk = {source_, Chunk{pair_ * s_.blocks_of(source_) + block_}};
      step.rows = rows_;
      step.is_masked = step.keys.keys < steps_.step_rows || !all_meet(s_.tile_spans[tile_], step.keys.bounds());
      return true;
    }
  }

 private:
  TILEWIRE_HD constexpr bool next_block() {
    for (++block_; block_ < end_; ++block_) {
      const ChunkRef block{source_, Chunk{block_}};
      if (!s_.is_looked_at(tile_, block)) continue;
      rows_ = s_.rows_of(block);
      row_ = rows_.begin;
      return true;
    }
    return false;
  }

  const Schedule& s_;
  const KeySteps& steps_;
  int32_t tile_, pair_;
  Rank source_;
  int32_t block_, end_;
  RowRange rows_{0, 0};
  int64_t row_ = 0;
};

}  // namespace tilewire::attention
