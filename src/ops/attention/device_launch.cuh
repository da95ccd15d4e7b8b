// Ring attention on the GPU of one rank: prepares and launches the fused kernel. Host code. The kernel reaches the arenas of
// its node by plain pointers, and other nodes by commands to its proxy.
#pragma once

#include "device/attention/attention_form.h"
#include "device/tile/fused_kernel.cuh"
#include "ops/attention/plan.h"

#include <tilewire/tensor.h>

#include <cuda_runtime_api.h>

namespace tilewire::attention {

struct FusedParameters;  // ops/attention/device_parameters.cuh

// The form for heads of that size, whose rows tiles have and whose steps chunks are whole multiples of. Throws
// Error(invalid_argument) where there is none.
const AttentionForm& fused_form(int64_t head_dim);

struct FusedPlan {
  PlanChoice choice;         // in head-major order; a worker is a CTA
  uint32_t pace_clocks = 0;  // from one piece that a copying warp loads to the next, at least
};

// The caller's tensors of one call, in device memory, of the problem's dtype: columns contiguous, addresses and strides
// multiples of 16 bytes.
struct FusedOperands {
  HeadsView q, k, v;          // of the own rows
  HeadsView out;              // as q
  float* log_sums = nullptr;  // [batch, q heads, own rows]
  float scale = 1;
};

struct FusedTypes {
  using Problem = attention::Problem;
  using Plan = FusedPlan;
  using Context = PlanContext;
  using Operands = FusedOperands;
  using Parameters = FusedParameters;
  using Form = AttentionForm;
  struct State;
};
using FusedKernel = FusedKernelOf<FusedTypes>;

}  // namespace tilewire::attention

extern template class tilewire::FusedKernelOf<tilewire::attention::FusedTypes>;
