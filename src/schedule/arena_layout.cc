#include "schedule/arena_layout.h"

#include <fmt/format.h>
#include <tilewire/error.h>
#include <tilewire/options.h>

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

// For how many chunks of a source commands can name words.
int64_t most_chunks(int64_t ranks) {
  return (CommandLimits::kWords - 2 * ranks) / (kWordFamilies * std::max<int64_t>(1, ranks));
}
static_assert(FlagLayout{.ranks = CommandLimits::kRanks, .max_chunks = 32}.words() <= CommandLimits::kWords,
              "the largest cluster has hardly any words for chunks");

constexpr int64_t kUsualChunks = 1024;

}  // namespace

ArenaLayout arena_layout(int32_t ranks, const Options& options) {
  const int64_t asked = options.max_chunks_per_source;
  const int64_t chunks = asked > 0 ? asked : std::clamp<int64_t>(most_chunks(ranks), 1, kUsualChunks);
  return {.flags = {.ranks = ranks, .max_chunks = static_cast<int32_t>(chunks)},
          .half_stride_bytes = options.arena_reserve_bytes,
          .user_stride_bytes = options.user_arena_reserve_bytes};
}

void check_limits(const ArenaLayout& layout) {
  const int64_t ranks = layout.flags.ranks;
  check_fits({"world size", ranks, CommandLimits::kRanks}, "use fewer ranks");
  check_fits({"flag words", layout.flags.words(), CommandLimits::kWords},
             fmt::format("lower TILEWIRE_MAX_CHUNKS_PER_SOURCE to {} on all {} ranks", most_chunks(ranks), ranks));
  check_area("half stride", "TILEWIRE_ARENA_RESERVE_BYTES", layout.half_stride_bytes);
  check_area("user stride", "TILEWIRE_USER_ARENA_RESERVE_BYTES", layout.user_stride_bytes);
}

}  // namespace tilewire
