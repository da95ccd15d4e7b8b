// AllGather+GEMM on the GPU of one rank: prepares and launches the fused kernel. Host code. The kernel reaches the
// arenas of its node by plain pointers, and other nodes by commands to its proxy.
#pragma once

#include "device/comm/device_rank.h"
#include "device/tile/tensor_map.cuh"
#include "ops/ag_gemm/device_plan.h"
#include "schedule/wire.h"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
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

class FusedKernel {
 public:
  // On the current device. Does all that is slow: tables into device memory, loading of the kernel, its attributes.
  // Throws Error(invalid_argument) naming what the kernel cannot do (operands in fp32), Error(resource) when the grid
  // does not fit the GPU.
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

  // The parts of launch(), for tests that change what the kernel is given.
  FusedParameters parameters(uint64_t agreed_hash, const FusedOperands& operands) const;
  void launch(FusedParameters& parameters, cudaStream_t stream) const;
  void copy_gathered(const FusedOperands& operands, cudaStream_t stream) const;  // where the problem wants them

  // The gathered rows of call `epoch`, pitch as in the arena; valid until call epoch + 2 begins anywhere. With
  // own_in_place only some of the own rows are among them.
  DeviceMatrix gathered(Epoch epoch) const;
  int32_t ctas() const;
  const FormNumbers& form() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tilewire::ag_gemm
