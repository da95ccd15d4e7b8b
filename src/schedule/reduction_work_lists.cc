#include "schedule/reduction_work_lists.h"

#include <limits>

#include "base/check.h"

namespace tilewire {

uint32_t wire_unit(int64_t offset) {
  const int64_t unit = offset / kWireUnitBytes;
  TILEWIRE_CHECK_LE(unit, int64_t{std::numeric_limits<uint32_t>::max()}, ErrorKind::resource,
                    "a half of the arena is too large for a kernel");
  return static_cast<uint32_t>(unit);
}

}  // namespace tilewire
