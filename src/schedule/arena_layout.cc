#include "schedule/arena_layout.h"

#include <fmt/format.h>
#include <tilewire/error.h>

namespace tilewire {
namespace {

void check_fits(const char* what, int64_t value, int64_t limit, const char* advice) {
  if (value > limit) {
    throw Error(ErrorKind::resource, {.what = fmt::format("{} does not fit its wire field", what),
                                      .where = "arena layout",
                                      .values = fmt::format("{} = {}", what, value),
                                      .limit = fmt::format("at most {}", limit),
                                      .advice = advice});
  }
}

}  // namespace

void check_limits(const ArenaLayout& layout) {
  check_fits("world size", layout.flags.ranks, CommandLimits::kRanks, "use fewer ranks");
  check_fits("flag words", layout.flags.words(), CommandLimits::kWords, "lower TILEWIRE_MAX_CHUNKS_PER_SOURCE");
  check_fits("half stride", layout.half_stride_bytes, CommandLimits::kAreaBytes, "lower TILEWIRE_ARENA_RESERVE_BYTES");
  check_fits("user stride", layout.user_stride_bytes, CommandLimits::kAreaBytes,
             "lower TILEWIRE_USER_ARENA_RESERVE_BYTES");
}

}  // namespace tilewire
