// GEMM+ReduceScatter on the GPU of one rank: prepares and launches the fused kernel. Host code. The kernel reaches the
// arenas of its node by plain pointers, and other nodes by commands to its proxy.
#pragma once

#include "device/comm/device_rank.h"
#include "device/tile/tensor_map.cuh"
#include "ops/gemm_rs/device_plan.h"
#include "schedule/wire.h"

#include <tilewire/matrix.h>

#include <cuda_runtime_api.h>

#include <memory>
#include <optional>

namespace tilewire::gemm_rs {

struct FusedParameters;  // ops/gemm_rs/device_parameters.cuh

// The caller's matrices of one call, in device memory. `a` and `b` are of the problem's dtype, their pitches multiples of 16
// bytes and addresses 16-byte aligned; rows of `a` are read up to the next 16 bytes.
struct FusedOperands {
  DeviceMatrix a;              // [total rows, K]
  DeviceMatrix b;              // [K, N], or [N, K] without is_b_n_major
  MatrixView out;              // [own rows, N], columns contiguous
  const void* bias = nullptr;  // [N], null: none
  DataType bias_type = DataType::fp32;
  std::optional<MatrixView> residual;  // as `out`, any strides and dtype
};

class FusedKernel {
 public:
  // On the current device. Does all that is slow: tables into device memory, loading of the kernel, its attributes.
  // Throws Error(invalid_argument) naming what the kernel cannot do (fp32 operands),
  // Error(resource) when the grid does not fit the GPU.
  FusedKernel(const Problem& problem, const FusedPlan& plan, const PlanContext& context, const DeviceRank& rank,
              bool is_b_n_major);
  ~FusedKernel();
  FusedKernel(FusedKernel&&) noexcept;
  FusedKernel& operator=(FusedKernel&&) noexcept;

  // The next call of the communicator, which the rank's state numbers; may be captured in a graph and replayed. All
  // ranks give the same hash of what they agreed on. Asynchronous: neither allocates nor waits. Calls of a communicator
  // follow each other in stream order. Throws Error(invalid_argument) naming the operand that does not fit,
  // Error(internal) when the launch fails. Any thread, one at a time; the device of the constructor must be current.
  void launch(uint64_t agreed_hash, const FusedOperands& operands, cudaStream_t stream) const;

  // The two halves of launch(), for tests that change what the kernel is given.
  FusedParameters parameters(uint64_t agreed_hash, const FusedOperands& operands) const;
  void launch(FusedParameters& parameters, cudaStream_t stream) const;

  int32_t ctas() const;
  const FormNumbers& form() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tilewire::gemm_rs
