// The keys of all ranks in steps, as a kernel takes them: so many rows of a
// source at a time, cut from its first row on. Host code makes the tables, the
// loader of a kernel walks them: one thread, which the computing warps wait
// for, so each step costs it one look at memory, and that a step ahead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/attention/rank_schedule.h"

namespace tilewire::attention {

// Where the keys of a step are in the whole sequence. Positions of a kernel
// have 31 bits. A step whose keys do not come to this rank, since no row of it
// sees one: `least` is above `most`, and so nothing meets it.
struct alignas(16) KeyStep {
  int32_t least = INT32_MAX;
  int32_t most = -1;
  int32_t keys = 0;
  int32_t is_run = 0;  // they follow each other, from `least` on
};

// From the first step of a source on in which a row of a tile may see a key, up
// to the last one.
struct StepRange {
  int32_t first = 0;  // among the steps of the source
  int32_t count = 0;
};

// As a kernel sees the tables. Chunks are whole multiples of a step, but for
// the last one of a source.
struct KeySteps {
  int32_t step_rows = 1;
  int32_t block_steps = 1;              // of a chunk
  const KeyStep* steps = nullptr;       // [steps of all sources]
  const int32_t* step_begin = nullptr;  // [ranks + 1]
  const StepRange* of_tiles = nullptr;  // [tiles, ranks]
};

class KeyStepTable {
 public:
  // Throws Error(invalid_argument) for positions that have more than 31 bits,
  // and for chunks that are no whole steps.
  KeyStepTable(const Schedule& schedule, int32_t step_rows);
  // How many steps there are of all sources, and of a chunk, whatever rows see.
  static size_t count(const Schedule& schedule, int32_t step_rows);
  static int32_t block_steps(const Schedule& schedule, int32_t step_rows);
  KeySteps view() const { return {step_rows_, block_steps_, steps_.data(), step_begin_.data(), of_tiles_.data()}; }
  const std::vector<KeyStep>& steps() const { return steps_; }

 private:
  void add_source(const Schedule& s, Rank source);
  void set_tiles(const Schedule& s);

  int32_t step_rows_, block_steps_;
  std::vector<KeyStep> steps_;
  std::vector<int32_t> step_begin_{0};
  std::vector<StepRange> of_tiles_;
};

// The spans of a tile in 31 bits: what is beyond them is as far as they go.
struct TileBounds {
  int32_t any_begin = 0, any_end = 0, all_begin = 0, all_end = 0;

  constexpr TileBounds() = default;
  TILEWIRE_HD constexpr TileBounds(int32_t any_from, int32_t any_to, int32_t all_from, int32_t all_to)
      : any_begin(any_from), any_end(any_to), all_begin(all_from), all_end(all_to) {}
  TILEWIRE_HD constexpr explicit TileBounds(const SpanBounds& s)
      : TileBounds(clamped(s.any.begin), clamped(s.any.end), clamped(s.all.begin), clamped(s.all.end)) {}

  TILEWIRE_HD constexpr bool may_meet(const KeyStep& k) const { return k.most >= any_begin && k.least < any_end; }
  TILEWIRE_HD constexpr bool all_meet(const KeyStep& k) const { return k.least >= all_begin && k.most < all_end; }

 private:
  TILEWIRE_HD static constexpr int32_t clamped(int64_t position) {
    if (position < INT32_MIN) return INT32_MIN;
    return position > INT32_MAX ? INT32_MAX : static_cast<int32_t>(position);
  }
};

// The steps of a source in which some row of a tile may see a key, in order.
class StepWalk {
 public:
  struct Step {
    int32_t number = 0;  // among the steps of the source
    KeyStep keys;
    bool is_masked = true;
    bool is_last = false;
  };

  TILEWIRE_HD constexpr StepWalk(const Schedule& s, const KeySteps& steps, int32_t tile, Rank source)
      : StepWalk(TileBounds(s.tile_spans[tile]), steps.step_rows,
                 steps.of_tiles[int64_t{tile} * s.ranks() + source.value],
                 steps.steps + steps.step_begin[source.value]) {}
  // A part of them; `steps`: of the source.
  TILEWIRE_HD constexpr StepWalk(const TileBounds& tile, int32_t step_rows, StepRange range, const KeyStep* steps)
      : tile_(tile),
        step_rows_(step_rows),
        number_(range.first),
        end_(range.first + range.count),
        ahead_(steps + range.first) {
    if (number_ < end_) keys_ = *ahead_;
  }

  TILEWIRE_HD constexpr bool next(Step& step) {
    while (number_ < end_) {
      step.number = number_;
      step.keys = keys_;
      if (++number_ < end_) keys_ = *++ahead_;
      if (!tile_.may_meet(step.keys)) continue;
      step.is_masked = step.keys.keys < step_rows_ || !tile_.all_meet(step.keys);
      step.is_last = number_ == end_;  // it meets, or the range would end before it
      return true;
    }
    return false;
  }

 private:
  TileBounds tile_;
  int32_t step_rows_, number_, end_;
  const KeyStep* ahead_;
  KeyStep keys_;  // of the next one
};

}  // namespace tilewire::attention
