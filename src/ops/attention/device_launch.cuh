// Ring attention on the GPU of one rank: prepares and launches the fused kernel. Host code. The kernel reaches the arenas of
// its node by plain pointers, and other nodes by commands to its proxy.
#pragma once

#include "device/tile/fused_kernel.cuh"
#include "ops/attention/device_plan.h"

#include <tilewire/call.h>
#include <tilewire/tensor.h>

#include <cuda_runtime_api.h>

namespace tilewire::attention {

struct FusedParameters;  // ops/attention/device_parameters.cuh

// The caller's tensors of one call, in device memory, of the problem's dtype: columns contiguous, addresses and strides
// multiples of 16 bytes. Calls may have positions and documents of their own: launch() brings their tables.
struct FusedOperands {
  HeadsView q, k, v;          // of the own rows
  HeadsView out;              // as q
  float* log_sums = nullptr;  // [batch * q heads, own rows]
  int64_t log_sum_pitch = 0;  // numbers from one head to the next
  float scale = 1;
  const Problem* problem = nullptr;  // of the kernel's shape; null: that of the kernel
};

// Throws Error(invalid_argument) for a scale that a kernel does not take: it is above 0, and finite.
void check_kernel_scale(float scale);

struct FusedTypes {
  using Problem = attention::Problem;
  using Plan = FusedPlan;
  using Context = PlanContext;
  using Operands = FusedOperands;
  using Parameters = FusedParameters;
  using Form = AttentionForm;
  struct State;
};

class FusedKernel : public FusedKernelOf<FusedTypes> {
 public:
  using FusedKernelOf::FusedKernelOf;

  // What calls of a problem move that launch() has had.
  const CallReport& report(const Problem& problem) const;
};

}  // namespace tilewire::attention

extern template class tilewire::FusedKernelOf<tilewire::attention::FusedTypes>;
