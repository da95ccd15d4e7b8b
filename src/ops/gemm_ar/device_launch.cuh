// GEMM+AllReduce on the GPU of one rank: prepares and launches the fused kernel. Host code. The kernel reaches the
// arenas of its node by plain pointers, and other nodes by commands to its proxy.
#pragma once

#include <span>
#include <vector>

#include "ops/gemm_ar/device_plan.h"
#include "ops/gemm_ar/flags.h"
#include "ops/gemm_ar/roles.h"
#include "reduction/fused_reduction_kernel.h"
#include "schedule/reduction_work_lists.h"

namespace tilewire::gemm_ar {

struct FusedParameters;  // ops/gemm_ar/device_parameters.cuh

// See reduction/fused_reduction_kernel.h.
struct KernelOp {
  static constexpr const char* kName = kCallName;
  static constexpr const char* const* kFamilyNames = gemm_ar::kFamilyNames;
  using Roles = gemm_ar::Roles;
  using Plan = FusedPlan;
  using Tables = FusedTables;
  using Parameters = FusedParameters;
  struct Own;

  static std::span<const FormEntry> entries();
  static std::vector<int32_t> source_slots(const Schedule& schedule);
  static ReductionWorkLists works(const Schedule& schedule, WorkSize size);
};

using FusedOperands = ReductionKernelOperands;
using FusedKernel = FusedReductionKernel<KernelOp>;

}  // namespace tilewire::gemm_ar

extern template class tilewire::FusedKernelOf<tilewire::ReductionKernelTypes<tilewire::gemm_ar::KernelOp>>;
