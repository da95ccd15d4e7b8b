// MoE dispatch + grouped GEMM on the GPU of one rank: prepares and launches the fused kernel. Host code. The kernel reaches
// the arenas of its node by plain pointers, and other nodes by commands to its proxy.
#pragma once

#include "device/tile/fused_kernel.cuh"
#include "device/tile/tensor_map.cuh"
#include "ops/moe_dispatch/device_plan.h"
#include "ops/moe_dispatch/device_routes.h"
#include "ops/moe_dispatch/host_executor.h"

#include <cstdint>

namespace tilewire::moe_dispatch {

struct FusedParameters;  // device_parameters.cuh

// The caller's arrays of one call, in device memory. Addresses and pitches are multiples of 16 bytes; rows of x are read up to
// the next 16 bytes.
struct FusedOperands {
  DeviceMatrix x;  // [own tokens, H]
  DeviceRoutes routes;
  SlotArray w;       // of each own expert, in the order of their numbers: [H, I], or [I, H] without is_b_n_major
  DeviceMatrix out;  // [rows or more, I], of the problem's dtype; rows behind those that come become zeros
  int32_t* origins = nullptr;  // [rows of out, 3]
  int64_t* offsets = nullptr;  // [own experts + 1]
  // Of a call that counts alone there are tokens and routes.
};

struct FusedTypes {
  using Problem = moe_dispatch::Problem;
  using Plan = FusedPlan;
  using Context = PlanContext;
  using Form = FormNumbers;
  using Operands = FusedOperands;
  using Parameters = FusedParameters;
  struct State;
};

class FusedKernel : public FusedKernelOf<FusedTypes> {
 public:
  using FusedKernelOf::FusedKernelOf;

  // The tables that the last call has made, with pointers into device memory; for tests and reports.
  Routing routing() const;
  // Of all ranks, as it has counted them.
  CallCounts counts() const;
};

}  // namespace tilewire::moe_dispatch

extern template class tilewire::FusedKernelOf<tilewire::moe_dispatch::FusedTypes>;
