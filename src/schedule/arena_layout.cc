#include "schedule/arena_layout.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>

namespace tilewire {
namespace {

struct Field {
  const char* what = "";
  int64_t value = 0;
  int64_t limit = 0;
};

void check_fits(const Field& f, const std::string& advice) {
  if (f.value <= f.limit) return;
  throw Error(ErrorKind::resource, {.what = fmt::format("{} does not fit the commands of a communicator", f.what),
                                    .where = "arena layout",
                                    .values = fmt::format("{} = {}", f.what, f.value),
                                    .limit = fmt::format("at most {}", f.limit),
                                    .advice = advice});
}

void check_area(const char* what, const char* option, int64_t bytes) {
  constexpr int64_t kMost = CommandLimits::kAreaBytes;
  static_assert(kMost % (int64_t{1} << 30) == 0);
  check_fits({what, bytes, kMost}, fmt::format("lower {} to {}GiB on all ranks", option, kMost >> 30));
}

}  // namespace

void check_limits(const ArenaLayout& layout) {
  const int64_t ranks = layout.flags.ranks;
  check_fits({"world size", ranks, CommandLimits::kRanks}, "use fewer ranks");
  const int64_t most_chunks = (CommandLimits::kWords - 2 * ranks) / (kWordFamilies * std::max<int64_t>(1, ranks));
  check_fits({"flag words", layout.flags.words(), CommandLimits::kWords},
             fmt::format("lower TILEWIRE_MAX_CHUNKS_PER_SOURCE to {} on all {} ranks", most_chunks, ranks));
  check_area("half stride", "TILEWIRE_ARENA_RESERVE_BYTES", layout.half_stride_bytes);
  check_area("user stride", "TILEWIRE_USER_ARENA_RESERVE_BYTES", layout.user_stride_bytes);
}

}  // namespace tilewire
