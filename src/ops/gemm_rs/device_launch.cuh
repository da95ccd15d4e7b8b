// GEMM+ReduceScatter on the GPU of one rank: prepares and launches the fused kernel. Host code. The kernel reaches the
// arenas of its node by plain pointers, and other nodes by commands to its proxy.
#pragma once

#include <vector>

#include "ops/gemm_rs/device_plan.h"
#include "reduction/fused_reduction_kernel.h"

namespace tilewire::gemm_rs {

struct FusedParameters;  // ops/gemm_rs/device_parameters.cuh

// See reduction/fused_reduction_kernel.h.
struct KernelOp {
  using Problem = gemm_rs::Problem;
  using Schedule = gemm_rs::Schedule;
  using Plan = FusedPlan;
  using Tables = FusedTables;
  using Parameters = FusedParameters;
  struct Own;

  static const FormEntry& entry(const FusedPlan& plan);
  static ReductionKernelShape shape(const Problem& problem, Rank me);
  static std::vector<int32_t> source_slots(const Schedule& schedule);
};

using FusedOperands = ReductionKernelOperands;
using FusedKernel = FusedReductionKernel<KernelOp>;

}  // namespace tilewire::gemm_rs

extern template class tilewire::FusedKernelOf<tilewire::ReductionKernelTypes<tilewire::gemm_rs::KernelOp>>;
