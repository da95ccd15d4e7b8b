// What a kernel counts with, for it and for who plans its calls; and what it may have to remark.
#pragma once

#include <cstdint>

#include "device/comm/device_rank.h"
#include "device/tile/tile_form.h"

namespace tilewire::moe_dispatch {

// The threads of a CTA that make tables: those that compute.
constexpr int32_t kTableThreads = kComputeGroups * kWarpgroupThreads, kTableWarps = kTableThreads / 32;
constexpr int32_t kMostLocalRanks = 32;  // of a node: one lane tells each of them

// Parts of the tokens of a round, for so many CTAs that count: none of few tokens, and no CTA has a second one where there are
// fewer rounds than CTAs. Never more parts than the larger of both numbers, of all rounds.
constexpr int32_t kLeastPartTokens = 16;
TILEWIRE_HD constexpr int32_t parts_of_round(int32_t rounds, int32_t tokens, int32_t ctas) {
  const int32_t most = rounds > 0 && ctas > rounds ? ctas / rounds : 1;
  const int32_t parts = (tokens + kLeastPartTokens - 1) / kLeastPartTokens;
  return parts < 1 ? 1 : parts < most ? parts : most;
}

// Counts of each expert and node stand in the shared memory that is the tiles' later: for each warp, and all that lie before.
constexpr int32_t counts_of_cta(int32_t columns) { return (kTableWarps + 1) * columns + 2; }
constexpr int32_t most_counts(const FormNumbers& form) {
  return (form.shared_bytes - (64 << 10)) / ((kTableWarps + 1) * static_cast<int32_t>(sizeof(int32_t))) - 1;
}

// Warps that move rows beside the tiles: 2 and 3 of each CTA but for those that speak for the rank.
TILEWIRE_HD constexpr int32_t helpers_of(int32_t ctas) { return 2 * ctas - kRankWarps; }

// Kinds of CallRemark, and its numbers.
enum class Remark : int32_t {
  overflow = 1,   // the rank that gets too many rows, how many, the most
  no_expert = 2,  // of an own token: its number, the slot, what stands there
  more_rows = 3,  // than the result has room for: the rank, how many, the room
};

}  // namespace tilewire::moe_dispatch
