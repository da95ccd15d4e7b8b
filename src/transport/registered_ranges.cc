#include "transport/registered_ranges.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>

namespace tilewire {
namespace {

[[noreturn]] void refuse(const WriteRequest& request, const std::string& where, std::string what, std::string limit) {
  throw Error(ErrorKind::invalid_argument,
              {.what = std::move(what),
               .where = where,
               .values = fmt::format("request {} to rank {}: src_offset = {}, dst_offset = {}, bytes = {}", request.id,
                                     request.peer.value, request.src_offset, request.dst_offset, request.bytes),
               .limit = std::move(limit)});
}

}  // namespace

void RegisteredRanges::add(uint64_t begin, uint64_t bytes, uint64_t arena_bytes) {
  if (begin > arena_bytes || bytes > arena_bytes - begin) {
    throw Error(ErrorKind::invalid_argument, {.what = "a range to register is not inside the arena",
                                              .values = fmt::format("begin = {}, bytes = {}", begin, bytes),
                                              .limit = fmt::format("{} bytes", arena_bytes)});
  }
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  const std::span<const Range> now = ranges_.now();
  std::vector<Range> all(now.begin(), now.end());
  all.push_back({begin, begin + bytes});
  std::sort(all.begin(), all.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> joined;
  for (const Range& range : all) {
    if (joined.empty() || range.begin > joined.back().end) {
      joined.push_back(range);
    } else {
      joined.back().end = std::max(joined.back().end, range.end);
    }
  }
  ranges_.replace(std::move(joined));
}

void RegisteredRanges::remove(uint64_t begin, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  std::vector<Range> left;
  for (const Range& range : ranges_.now()) {
    const bool has_it = begin >= range.begin && begin + bytes <= range.end;
    if (!has_it || range.begin < begin) left.push_back({range.begin, has_it ? begin : range.end});
    if (has_it && begin + bytes < range.end) left.push_back({begin + bytes, range.end});
  }
  ranges_.replace(std::move(left));
}

bool RegisteredRanges::has(uint64_t begin, uint64_t bytes) const {
  const std::span<const Range> ranges = ranges_.now();
  return std::any_of(ranges.begin(), ranges.end(), [&](const Range& range) {
    return begin >= range.begin && begin <= range.end && bytes <= range.end - begin;
  });
}

void check_request(const WriteRequest& request, const Caps& caps, const RegisteredRanges& ranges,
                   const std::string& where) {
  if (request.kind == RequestKind::write_value) {
    if (!caps.value_writes) refuse(request, where, "value writes are not supported", "see Caps");
    if (request.dst_offset % sizeof(uint64_t) != 0) refuse(request, where, "dst_offset is not aligned", "8 bytes");
    if (!ranges.has(request.dst_offset, sizeof(uint64_t))) refuse(request, where, "dst_offset is not registered", "");
    return;
  }
  if (request.kind == RequestKind::write_with_immediate && !caps.write_with_immediate) {
    refuse(request, where, "writes with immediate are not supported", "see Caps");
  }
  if (request.bytes == 0) {
    if (request.kind == RequestKind::write) refuse(request, where, "bytes is 0", "at least 1");
    return;
  }
  if (request.bytes > caps.max_write_bytes) {
    refuse(request, where, "bytes is too large", fmt::format("{} bytes", caps.max_write_bytes));
  }
  if (!ranges.has(request.src_offset, request.bytes)) refuse(request, where, "the source is not registered", "");
  if (!ranges.has(request.dst_offset, request.bytes)) refuse(request, where, "the destination is not registered", "");
}

}  // namespace tilewire
