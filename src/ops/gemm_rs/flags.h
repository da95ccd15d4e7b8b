// THE list of flags and buffers of GEMM+ReduceScatter: those of a reduction, and no others. Sizes, offsets, the dump of
// a stuck call and the tables of the README follow from it.
#pragma once

#include "schedule/reduction_flags.h"

namespace tilewire::gemm_rs {

using Buffers = ReductionBuffers;

inline constexpr const char* const (&kFamilyNames)[kWordFamilies] = kReductionFamilyNames;  // for errors and dumps

}  // namespace tilewire::gemm_rs
