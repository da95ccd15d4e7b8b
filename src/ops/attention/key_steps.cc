#include "ops/attention/key_steps.h"

#include <tilewire/error.h>

#include <algorithm>
#include <string>

#include "base/bytes.h"

namespace tilewire::attention {
namespace {

KeyStep step_of(const int64_t* positions, int64_t keys) {
  KeyBounds bounds;
  bool is_run = true;
  for (int64_t i = 0; i < keys; ++i) {
    bounds.add(positions[i]);
    is_run = is_run && positions[i] == positions[0] + i;
  }
  if (bounds.most >= INT32_MAX) {
    throw Error(ErrorKind::invalid_argument, {.what = "a position is too large for a kernel",
                                              .values = std::to_string(bounds.most),
                                              .limit = "below 2^31 - 1"});
  }
  return {static_cast<int32_t>(bounds.least), static_cast<int32_t>(bounds.most), static_cast<int32_t>(keys),
          is_run ? 1 : 0};
}

}  // namespace

KeyStepTable::KeyStepTable(const Schedule& s, int32_t step_rows)
    : step_rows_(step_rows), block_steps_(block_steps(s, step_rows)) {
  for (int32_t r = 0; r < s.ranks(); ++r) add_source(s, Rank{r});
  set_tiles(s);
}

size_t KeyStepTable::count(const Schedule& s, int32_t step_rows) {
  int64_t count = 0;
  for (int32_t block = 0; block < s.blocks.total_chunks(); ++block) {
    count += div_up(s.blocks.rows(s.blocks.at(block)).rows(), step_rows);
  }
  return static_cast<size_t>(count);
}

int32_t KeyStepTable::block_steps(const Schedule& s, int32_t step_rows) {
  return narrow<int32_t>(div_up(s.blocks.chunk_rows, step_rows));
}

void KeyStepTable::add_source(const Schedule& s, Rank source) {
  if (s.blocks_of(source) > 1 && s.blocks.chunk_rows % step_rows_ != 0) {
    throw Error(ErrorKind::invalid_argument, {.what = "chunks of keys are no whole steps of the kernel",
                                              .values = std::to_string(s.blocks.chunk_rows) + " rows",
                                              .limit = "a multiple of " + std::to_string(step_rows_)});
  }
  const int64_t* positions = s.key_positions + s.blocks.row_begin[source.value];
  for (int32_t block = 0; block < s.blocks_of(source); ++block) {
    const ChunkRef chunk{source, Chunk{block}};
    const RowRange rows = s.rows_of(chunk);
    const bool comes = s.wants(s.me(), chunk);
    for (int64_t row = rows.begin; row < rows.end; row += step_rows_) {
      const KeyStep step = step_of(positions + row, std::min<int64_t>(step_rows_, rows.end - row));
      steps_.push_back(comes ? step : KeyStep{});
    }
  }
  step_begin_.push_back(narrow<int32_t>(static_cast<int64_t>(steps_.size())));
}

void KeyStepTable::set_tiles(const Schedule& s) {
  for (int32_t tile = 0; tile < s.tiles; ++tile) {
    const TileBounds bounds(s.tile_spans[tile]);
    for (int32_t r = 0; r < s.ranks(); ++r) {
      const BlockRange blocks = s.looked_at(tile, Rank{r});
      const int32_t begin = step_begin_[static_cast<size_t>(r)], end = step_begin_[static_cast<size_t>(r) + 1];
      const int32_t last = std::min(end, begin + (blocks.first + blocks.count) * block_steps_);
      StepRange range;
      for (int32_t i = begin + blocks.first * block_steps_; i < last; ++i) {
        if (!bounds.may_meet(steps_[static_cast<size_t>(i)])) continue;
        if (range.count == 0) range.first = i - begin;
        range.count = i - begin - range.first + 1;
      }
      of_tiles_.push_back(range);
    }
  }
}

}  // namespace tilewire::attention
