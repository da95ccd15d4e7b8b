// Where the buffers of a matrix that is summed over ranks lie, the same on all ranks.
#pragma once

#include <cstdint>
#include <string>

#include "planning/plan_parts.h"
#include "reduction/wire_types.h"
#include "schedule/reduction_flags.h"
#include "schedule/reduction_tables.h"

namespace tilewire {

// Of an element of a slot of a chunk.
int64_t slot_bytes(const ReductionCut& cut, DataType type);

// From the start of each half of the arena.
struct ReductionLayout {
  ReductionBuffers buffers;
  int64_t end = 0;
};
// `needs`: those of reduction_needs(), unless the op keeps more. Throws Error(resource) when that does not fit 64 bits.
ReductionLayout reduction_layout(const ReductionCut& cut, const ReductionNeeds& needs, const WireTypes& wire,
                                 const PlanContext& context);
// "" or why chunks of that size cannot be: too many for the flag area, or too large for a command where elements of this
// type are sent.
std::string reason_against_chunks(const ReductionCut& cut, const ReductionNeeds& needs, DataType sent,
                                  const PlanContext& context);

}  // namespace tilewire
