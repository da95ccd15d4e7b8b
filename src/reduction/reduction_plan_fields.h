// The numbers that plans of all ops have that sum a matrix over ranks, for their for_each_field().
#pragma once

#include <cstdint>

#include "planning/plan_parts.h"

namespace tilewire {

// Equal on all ranks.
template <class Choice, class Visit>
void for_each_shared_reduction_field(Choice& c, Visit&& visit) {
  visit("chunk_rows", c.chunk_rows, NumberRange{1, int64_t{1} << 40});
  visit("chunk_cols", c.chunk_cols, NumberRange{1, int64_t{1} << 40});
  visit("window", c.window, NumberRange{0, 1 << 20});
}
// Each rank's own.
template <class Choice, class Visit>
void for_each_own_reduction_field(Choice& c, Visit&& visit) {
  visit("is_fused", c.is_fused, NumberRange{0, 1});
  visit("workers", c.workers, NumberRange{1, 4096});
  visit("reduce_workers", c.reduce_workers, NumberRange{1, 256});
  for_each_cursor_field(c.cursors, visit);
}

}  // namespace tilewire
