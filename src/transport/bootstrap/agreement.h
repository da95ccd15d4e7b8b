// Comparing what the ranks of a job brought to the rendezvous. Pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "transport/bootstrap/handshake.h"

namespace tilewire {

// One line for each thing that differs, with all values and who has them; empty when the ranks can work together.
// joins[0] is rank 0's own. Looked at: rank numbers (twice, out of range), world size, job nonce, library version and
// the first differing line of the agreed options.
std::vector<std::string> find_differences(std::span<const Join> joins, const Nonce& nonce);

// The ranks of 0..world_size-1 that are not among the joins.
std::vector<Rank> missing_ranks(std::span<const Join> joins, int32_t world_size);

// Who waits so long for other ranks says in the log for whom, once. Ranks that were started together come within it.
inline constexpr std::chrono::milliseconds kSilence{5'000};

// "rank 3", "ranks 0, 1, 5"
std::string rank_list(std::span<const Rank> ranks);

}  // namespace tilewire
