// What a kernel counts with, for it and for who plans its calls; and what it may have to remark.
#pragma once

#include <cstdint>

#include "device/tile/tile_form.h"

namespace tilewire::moe_dispatch {

// The threads of a CTA that make tables: those that compute.
constexpr int32_t kTableThreads = kComputeGroups * kWarpgroupThreads, kTableWarps = kTableThreads / 32;
constexpr int32_t kMostLocalRanks = 32;  // of a node: one lane tells each of them
// Where rows are counted alone: as many slices of tokens, whatever their number.
constexpr int32_t kCountSlices = 1024;

// Counts of each expert and node stand in the shared memory that is the tiles' later, for each warp.
constexpr int32_t most_counts(const FormNumbers& form) {
  return (form.shared_bytes - (64 << 10)) / (kTableWarps * static_cast<int32_t>(sizeof(int32_t)));
}

// Kinds of CallRemark, and its numbers.
enum class Remark : int32_t {
  overflow = 1,   // the rank that gets too many rows, how many, the most
  no_expert = 2,  // of an own token: its number, the slot, what stands there
  more_rows = 3,  // than the result has room for: the rank, how many, the room
};

}  // namespace tilewire::moe_dispatch
