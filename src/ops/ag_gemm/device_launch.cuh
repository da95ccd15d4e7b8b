// AllGather+GEMM on the GPU of one rank: prepares and launches the fused kernel. Host code. The kernel reaches the
// arenas of its node by plain pointers, and other nodes by commands to its proxy.
#pragma once

#include "device/tile/fused_kernel.cuh"
#include "device/tile/tensor_map.cuh"
#include "ops/ag_gemm/device_plan.h"
#include "schedule/wire.h"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>
#include <vector>

namespace tilewire::ag_gemm {

struct FusedParameters;  // ops/ag_gemm/device_parameters.cuh

// The caller's matrices of one call, in device memory, of the problem's dtype. Pitches are multiples of 16 bytes and
// addresses 16-byte aligned. Rows are read up to the next 16 bytes (a) and written up to them (out).
struct FusedOperands {
  DeviceMatrix a;                     // [own rows, K]
  std::span<const DeviceMatrix> b;    // one a weight: [K, N_w], or [N_w, K] without is_b_n_major
  std::span<const DeviceMatrix> out;  // [total rows, N_w], of the problem's out_dtype
  DeviceMatrix gathered = {};  // [total rows, K], where the problem wants the gathered rows; only they are written
  std::span<const void* const> bias;    // [N_w] each, null: none; empty: none at all
  DataType bias_type = DataType::fp32;  // fp32, or the dtype of the problem
};

struct FusedTypes {
  using Problem = ag_gemm::Problem;
  using Plan = FusedPlan;
  using Context = PlanContext;
  using Operands = FusedOperands;
  using Parameters = FusedParameters;
  using Form = FormNumbers;
  struct State;
};

class FusedKernel : public FusedKernelOf<FusedTypes> {
 public:
  using FusedKernelOf::FusedKernelOf;

  // What launch() does behind the kernel where the problem wants the gathered rows; for tests.
  void copy_gathered(const FusedOperands& operands, cudaStream_t stream) const;
  // The gathered rows of call `epoch`, pitch as in the arena; valid until call epoch + 2 begins anywhere. With
  // own_in_place only some of the own rows are among them.
  DeviceMatrix gathered(Epoch epoch) const;
};

}  // namespace tilewire::ag_gemm

extern template class tilewire::FusedKernelOf<tilewire::ag_gemm::FusedTypes>;
