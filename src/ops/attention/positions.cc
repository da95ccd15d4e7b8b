#include "ops/attention/positions.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>

#include "base/bytes.h"

namespace tilewire::attention {

const char* to_string(Placement placement) {
  switch (placement) {
    case Placement::contiguous: return "contiguous";
    case Placement::zigzag: return "zigzag";
    case Placement::given: return "given";
  }
  return "";
}

std::vector<Positions> contiguous_positions(const std::vector<int64_t>& rows) {
  std::vector<Positions> all;
  int64_t begin = 0;
  for (const int64_t count : rows) {
    all.emplace_back();
    if (count > 0) all.back().push_back({begin, count});
    begin += count;
  }
  return all;
}

std::vector<Positions> zigzag_positions(int64_t total, int32_t ranks) {
  const int64_t block = div_up(total, 2 * int64_t{ranks});
  std::vector<Positions> all(static_cast<size_t>(ranks));
  for (int64_t r = 0; r < ranks; ++r) {
    Positions& own = all[static_cast<size_t>(r)];
    for (const int64_t number : {r, 2 * int64_t{ranks} - 1 - r}) {
      const int64_t begin = std::min(total, number * block), end = std::min(total, begin + block);
      if (begin == end) continue;
      if (!own.empty() && own.back().begin + own.back().count == begin) {
        own.back().count += end - begin;
      } else {
        own.push_back({begin, end - begin});
      }
    }
  }
  return all;
}

std::vector<int64_t> zigzag_rows(int64_t total, int32_t ranks) {
  std::vector<int64_t> rows;
  for (const Positions& p : zigzag_positions(total, ranks)) rows.push_back(rows_of(p));
  return rows;
}

Positions runs_of(std::span<const int64_t> positions) {
  Positions runs;
  for (const int64_t p : positions) {
    if (!runs.empty() && runs.back().begin + runs.back().count == p) {
      ++runs.back().count;
    } else {
      runs.push_back({p, 1});
    }
  }
  return runs;
}

int64_t rows_of(const Positions& positions) {
  int64_t rows = 0;
  for (const PositionRun& run : positions) rows += run.count;
  return rows;
}

std::vector<int64_t> expanded(const Positions& positions) {
  std::vector<int64_t> all;
  all.reserve(static_cast<size_t>(rows_of(positions)));
  for (const PositionRun& run : positions) {
    for (int64_t i = 0; i < run.count; ++i) all.push_back(run.begin + i);
  }
  return all;
}

std::vector<int64_t> packed(const Positions& positions) {
  std::vector<int64_t> numbers;
  for (const PositionRun& run : positions) numbers.insert(numbers.end(), {run.begin, run.count});
  return numbers;
}

Positions unpacked(std::span<const int64_t> numbers) {
  Positions positions;
  for (size_t i = 0; i + 1 < numbers.size(); i += 2) positions.push_back({numbers[i], numbers[i + 1]});
  const bool are_right = numbers.size() % 2 == 0 && std::all_of(positions.begin(), positions.end(), [](PositionRun r) {
                           return r.begin >= 0 && r.count > 0 && r.begin <= INT64_MAX / 2 && r.count <= INT64_MAX / 2;
                         });
  if (!are_right) {
    throw Error(ErrorKind::invalid_argument, {.what = "positions of a rank that cannot be",
                                              .where = "ring_attention",
                                              .values = fmt::format("{} numbers", numbers.size())});
  }
  return positions;
}

}  // namespace tilewire::attention
