// THE list of flags and buffers of GEMM+AllReduce: those of a reduction, and of the gather of its results. Sizes, offsets,
// the dump of a stuck call and the tables of the README follow from it.
#pragma once

#include <cstdint>

#include "schedule/reduction_flags.h"

namespace tilewire::gemm_ar {

// Word families of a reduction (schedule/reduction_flags.h), and
//   result_arrived(d, c)   owner d's chunk c is finished and lies here. Two shots only
//                          written by: in d's node d's finish; on the rail entry rank the network; elsewhere the entry
//                          rank's forward; read by: collect, send (own), forward (entry)
// In one shot partial_arrived(s, g) is about chunk g of the whole matrix, and sum_arrived(p, q) about the q-th chunk that
// p adds up for its node:
//                          written by: on the rail entry rank the network; elsewhere the entry rank's forward
//                          read by: finish, forward (entry)
inline constexpr int32_t kResultArrived = kReductionFamilies;
inline constexpr int32_t kFamilies = kReductionFamilies + 1;
static_assert(kFamilies <= kWordFamilies, "a rank has fewer word families: raise kWordFamilies");
// For errors and dumps.
inline constexpr const char* kFamilyNames[kWordFamilies] = {
    kReductionFamilyNames[0], kReductionFamilyNames[1], kReductionFamilyNames[2], kReductionFamilyNames[3],
    kReductionFamilyNames[4], kReductionFamilyNames[5], kReductionFamilyNames[6], "result_arrived"};

// Buffers in a half, behind the call records: those of ReductionBuffers, and
//   results   [chunks of the matrix]   finished chunks; the own ones are sent from there. Two shots only
// In one shot they are
//   partials  [ranks of the node, chunks of the matrix]
//   sent      [chunks that the rank adds up for its node]
//   received  [other nodes, chunks of the matrix]
// Where they lie is in rank_schedule.h.

}  // namespace tilewire::gemm_ar
