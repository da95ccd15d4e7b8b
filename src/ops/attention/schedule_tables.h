// The tables behind a rank's Schedule, and where its buffers lie.
#pragma once

#include <cstdint>

#include "ops/attention/problem.h"
#include "ops/attention/schedule.h"
#include "ops/attention/sight_tables.h"
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
  // The schedule of call `epoch`, where the problem knows all positions.
  Schedule schedule(Epoch epoch) const;
  // That of a call with the same shape, whose positions and documents are its own. Points into `sight` too.
  Schedule schedule(const Problem& problem, SightTables& sight) const;
  const SightTables& sight() const { return sight_; }
  int64_t bytes() const { return sight_.bytes(); }

 private:
  ChunkTables blocks_;
  SightTables sight_;
  Schedule schedule_;
};

}  // namespace tilewire::attention
