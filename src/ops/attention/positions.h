// Which place in the whole sequence each row of each rank has. Masks look at nothing else, so any placement is right.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tilewire::attention {

// Rows that lie one behind the other on a rank, at positions that do so too.
struct PositionRun {
  int64_t begin = 0;
  int64_t count = 0;
  friend bool operator==(const PositionRun&, const PositionRun&) = default;
};
// Those of one rank, in the order of its rows.
using Positions = std::vector<PositionRun>;

enum class Placement : uint8_t {
  contiguous,  // rank after rank
  zigzag,      // 2R blocks, cut by ceiling; rank r has blocks r and 2R - 1 - r
  given,       // the caller says
};
const char* to_string(Placement placement);

std::vector<Positions> contiguous_positions(const std::vector<int64_t>& rows);
std::vector<Positions> zigzag_positions(int64_t total, int32_t ranks);
// How many rows each rank has of a zigzag.
std::vector<int64_t> zigzag_rows(int64_t total, int32_t ranks);

// As few runs as there can be.
Positions runs_of(std::span<const int64_t> positions);
int64_t rows_of(const Positions& positions);
// One number a row.
std::vector<int64_t> expanded(const Positions& positions);

// As numbers, to be sent to other ranks, and back. The latter throws Error(invalid_argument) for what cannot be.
std::vector<int64_t> packed(const Positions& positions);
Positions unpacked(std::span<const int64_t> numbers);

}  // namespace tilewire::attention
