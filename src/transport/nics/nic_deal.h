// Which rank of a machine uses which NICs. Pure: every rank of the machine works it out from the same distances and
// takes its own part.
//
// Thread-safety: all functions from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tilewire {

// Of ranks x NICs, smaller is nearer.
using NicDistances = std::vector<std::vector<int32_t>>;

// For each rank its NICs, in ascending order: as many for each. `each` is that number; 0: as many as every rank can have of
// those nearest to it without sharing any, and where there are fewer than that one a rank, shared evenly. Among the ways
// to keep all NICs equally busy, the one of the shortest distances; among those, in the order of ranks and NICs, so that
// NICs of equal number meet on machines that are alike. There is a NIC at least; a rank gets none twice.
std::vector<std::vector<size_t>> deal_nics(const NicDistances& distances, size_t each);

}  // namespace tilewire
