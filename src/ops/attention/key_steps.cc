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

KeyStepTable::KeyStepTable(const Schedule& s, int32_t step_rows) : step_rows_(step_rows) {
  for (int32_t r = 0; r < s.ranks(); ++r) {
    step_begin_.push_back(narrow<int32_t>(static_cast<int64_t>(steps_.size())));
    const int64_t first = s.blocks.row_begin[r], rows = s.blocks.rows_of(Rank{r});
    if (s.blocks_of(Rank{r}) > 1 && s.rows_of({Rank{r}, Chunk{0}}).rows() % step_rows != 0) {
      throw Error(ErrorKind::invalid_argument,
                  {.what = "chunks of keys are no whole steps of the kernel",
                   .values = std::to_string(s.rows_of({Rank{r}, Chunk{0}}).rows()) + " rows",
                   .limit = "a multiple of " + std::to_string(step_rows)});
    }
    for (int64_t row = 0; row < rows; row += step_rows) {
      steps_.push_back(step_of(s.key_positions + first + row, std::min<int64_t>(step_rows, rows - row)));
    }
  }
  step_begin_.push_back(narrow<int32_t>(static_cast<int64_t>(steps_.size())));
}

}  // namespace tilewire::attention
