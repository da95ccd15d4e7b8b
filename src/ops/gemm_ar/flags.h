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
//   result_taken(p, q)     rank p of the node has copied a finished chunk into its caller's result; q is the chunk's number
//                          among all that its owner's rail partner here takes
//                          written by: p's collect, at that rail partner; read by: there finish (own chunks) and send.
//                          Only under a window
//   result_slot_free(e, c) all ranks of e's node have taken the own chunk c, which entered there
//                          written by: the network, for e's send; read by: send. Only under a window
// In one shot partial_arrived(s, g) is about chunk g of the whole matrix, and sum_arrived(p, q) about the q-th chunk that
// p adds up for its node:
//                          written by: on the rail entry rank the network; elsewhere the entry rank's forward
//                          read by: finish, forward (entry)
inline constexpr int32_t kResultArrived = kReductionFamilies, kResultTaken = kReductionFamilies + 1,
                         kResultSlotFree = kReductionFamilies + 2;
inline constexpr int32_t kFamilies = kReductionFamilies + 3;
static_assert(kFamilies <= kWordFamilies, "a rank has fewer word families: raise kWordFamilies");
// For errors and dumps.
inline constexpr const char* kFamilyNames[kWordFamilies] = {
    kReductionFamilyNames[0], kReductionFamilyNames[1], kReductionFamilyNames[2], kReductionFamilyNames[3],
    kReductionFamilyNames[4], kReductionFamilyNames[5], kReductionFamilyNames[6], "result_arrived",
    "result_taken",           "result_slot_free"};

// Buffers in a half, behind the call records: those of ReductionBuffers, and
//   results   [chunks of the matrix]   finished chunks; the own ones are sent from there. Two shots only
//             [owners, slots of one] under a window, where the own ones are sent from
//   finished  [own chunks]             for a network may read one until sent(e), so none is used twice
// In one shot they are
//   partials  [ranks of the node, chunks of the matrix]
//   sent      [chunks that the rank adds up for its node]
//   received  [other nodes, chunks of the matrix]
// Where they lie is in rank_schedule.h.

}  // namespace tilewire::gemm_ar
