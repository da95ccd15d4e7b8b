#include "schedule/simulator/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tilewire {

const char* to_string(ViolationKind kind) {
  static constexpr std::array<const char*, 23> kNames{"read_too_early",
                                                      "wrong_slot",
                                                      "overwritten",
                                                      "source_overwritten",
                                                      "outside_half",
                                                      "tile_twice",
                                                      "tile_missing",
                                                      "tile_unknown",
                                                      "record_unmatched",
                                                      "wait_without_signal",
                                                      "signal_without_wait",
                                                      "signal_twice",
                                                      "cycle",
                                                      "held_back",
                                                      "done_too_early",
                                                      "done_set",
                                                      "two_ahead",
                                                      "missing_call_end",
                                                      "ring_misuse",
                                                      "word_in_flight",
                                                      "word_went_back",
                                                      "not_at_rest",
                                                      "bad_command"};
  static_assert(static_cast<size_t>(ViolationKind::bad_command) + 1 == kNames.size());
  return kNames[static_cast<size_t>(kind)];
}

bool SimReport::has(ViolationKind kind) const {
  return std::any_of(violations.begin(), violations.end(), [kind](const Violation& v) { return v.kind == kind; });
}

std::string SimReport::text() const {
  if (ok()) {
    return fmt::format("no violation (seed {}, {} pieces of work, {} events, {} messages{})", seed, pieces_of_work,
                       events, messages, states > 0 ? fmt::format(", {} states", states) : "");
  }
  std::string text = fmt::format("{} violation(s) with seed {}:", violations.size(), seed);
  for (const Violation& v : violations) {
    text += fmt::format("\n  {}: rank {}", to_string(v.kind), v.rank.value);
    if (!v.role.empty()) text += fmt::format(" {}[{}]", v.role, v.worker);
    text += fmt::format(", call {}: {}", v.epoch, v.text);
  }
  return text;
}

}  // namespace tilewire
