#include "planning/plan_parts.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/number_text.h"

namespace tilewire {

std::string out_of_range_text(const char* name, int64_t value, NumberRange range) {
  if (value >= range.least && value <= range.most) return "";
  return fmt::format("{} = {}, must be in {}..{}", name, value, range.least, range.most);
}

std::vector<int64_t> doubling_sizes(int64_t least, int64_t most) {
  std::vector<int64_t> sizes;
  for (int64_t size = least; size < most; size *= 2) sizes.push_back(size);
  sizes.push_back(std::max<int64_t>(1, most));
  return sizes;
}

std::string prediction_text(const Cost& cost, int64_t half_bytes) {
  return fmt::format("predicted {} (compute alone {}, communication alone {}); takes {} of each half of the arena",
                     duration_text(cost.total_s), duration_text(cost.compute_s), duration_text(cost.communication_s),
                     rounded_bytes_text(half_bytes));
}

std::string slower_text(const char* what, double seconds, double best_s) {
  if (seconds == best_s) return fmt::format("{} {}, no less", what, duration_text(seconds));
  return fmt::format("{} {}, {} more", what, duration_text(seconds), duration_text(seconds - best_s));
}

std::string difference_text(const std::string& candidate, const std::string& choice) {
  const std::string padded = fmt::format(", {}, ", choice);
  std::string out;
  for (size_t begin = 0; begin < candidate.size();) {
    const size_t end = std::min(candidate.find(", ", begin), candidate.size());
    const std::string part = candidate.substr(begin, end - begin);
    if (padded.find(fmt::format(", {}, ", part)) == std::string::npos) out += (out.empty() ? "" : ", ") + part;
    begin = end + 2;
  }
  return out.empty() ? candidate : out;
}

void check_one_count_a_rank(const char* op, size_t counts, const PlanContext& context) {
  if (counts == static_cast<size_t>(context.topology.ranks)) return;
  throw Error(ErrorKind::invalid_argument,
              {.what = "rows has the wrong length",
               .where = op,
               .values = fmt::format("{} row counts", counts),
               .limit = fmt::format("must be {0}, for {0} ranks", context.topology.ranks)});
}

std::string reason_against_reserve(int64_t half_bytes, const PlanContext& context) {
  if (half_bytes <= context.arena.half_stride_bytes) return "";
  return fmt::format("needs {} bytes of each half of the arena, {} bytes are reserved", half_bytes,
                     context.arena.half_stride_bytes);
}

void check_reserve(const char* op, const std::string& of, int64_t half_bytes, const PlanContext& context) {
  std::string reason = reason_against_reserve(half_bytes, context);
  if (reason.empty()) return;
  throw Error(ErrorKind::resource, {.what = "the call does not fit the reserved arena",
                                    .where = fmt::format("{} of {}", op, of),
                                    .values = std::move(reason),
                                    .advice = kReserveAdvice});
}

std::string reason_against_chunks(int64_t chunk_rows, int64_t most_rows, int64_t row_bytes,
                                  const PlanContext& context) {
  const int64_t chunks = row_bytes == 0 ? 0 : div_up(most_rows, chunk_rows);
  if (chunks > context.arena.flags.max_chunks) {
    return fmt::format("chunk_rows = {} cuts {} rows into {} chunks, the flag area has room for {} a source",
                       chunk_rows, most_rows, chunks, context.arena.flags.max_chunks);
  }
  const int64_t chunk_bytes = checked_mul(std::min(chunk_rows, most_rows), row_bytes);
  if (chunk_bytes > CommandLimits::kChunkBytes) {
    return fmt::format("a chunk of {} bytes, a command moves at most {}", chunk_bytes, CommandLimits::kChunkBytes);
  }
  return "";
}

void refuse_given_plan(const char* op, const std::string& of, std::string reason) {
  throw Error(ErrorKind::invalid_argument, {.what = "the given plan cannot be used",
                                            .where = fmt::format("{} of {}", op, of),
                                            .values = std::move(reason),
                                            .advice = "leave plan out to have one made"});
}

void refuse_all_candidates(const char* op, const std::string& of, std::string last_reason, const char* advice) {
  throw Error(ErrorKind::resource, {.what = "no plan fits",
                                    .where = fmt::format("{} of {}", op, of),
                                    .values = std::move(last_reason),
                                    .advice = advice});
}

}  // namespace tilewire
