#include "executor/plan_parts.h"

#include <fmt/format.h>
#include <tilewire/error.h>

namespace tilewire {

std::string prediction_text(double predicted_s, double compute_s, double communication_s, int64_t half_bytes) {
  return fmt::format("predicted {:.1f} us (compute alone {:.1f}, communication alone {:.1f}); {} bytes in each half",
                     predicted_s * 1e6, compute_s * 1e6, communication_s * 1e6, half_bytes);
}

std::string slower_text(double predicted_s, double best_s) {
  return fmt::format("predicted {:.1f} us, {:.1f} us more", predicted_s * 1e6, (predicted_s - best_s) * 1e6);
}

void check_one_count_a_rank(const char* op, size_t counts, const PlanContext& context) {
  if (counts == static_cast<size_t>(context.topology.ranks)) return;
  throw Error(ErrorKind::invalid_argument, {.what = "rows has the wrong length",
                                            .where = op,
                                            .values = fmt::format("{} row counts", counts),
                                            .limit = fmt::format("one for each of {} ranks", context.topology.ranks)});
}

void check_reserve(const char* op, const char* what, int64_t half_bytes, const PlanContext& context) {
  if (half_bytes <= context.arena.half_stride_bytes) return;
  throw Error(ErrorKind::resource, {.what = fmt::format("{} does not fit the reserved arena", what),
                                    .where = op,
                                    .values = fmt::format("{} bytes in each half", half_bytes),
                                    .limit = fmt::format("{} bytes", context.arena.half_stride_bytes),
                                    .advice = "raise TILEWIRE_ARENA_RESERVE_BYTES on all ranks"});
}

}  // namespace tilewire
