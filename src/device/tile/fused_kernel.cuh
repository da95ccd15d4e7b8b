// The host object of an op's fused kernel: prepared once for a problem and a plan, and launched for each call. An op says
// its types, of which State is its own part; the source that has it includes fused_kernel_bodies.cuh and instantiates the object:
//
//   struct FusedTypes {
//     using Problem = ..., Plan = ..., Context = ..., Operands = ...;
//     using Parameters = ...;    the kernel's only one, with the CallView `call`
//     using Form = ...;          the numbers of the form that it has
//     struct State;
//   };
//   struct FusedTypes::State {
//     State(const Problem&, const Plan&, const Context&, const DeviceRank&, bool variant);
//     void check(const Operands&) const;                  throws naming the one that does not fit
//     void place(Parameters&, const Operands&) const;     all but what is another one in each call
//     void launch(Parameters&, cudaStream_t) const;
//     void lead(const Operands&, cudaStream_t) const;     where there is work in front of the kernel, ahead of place()
//     void follow(const Operands&, cudaStream_t) const;   where there is work behind it
//     const DeviceRank& rank() const;
//     int32_t ctas() const;
//     const Form& form() const;
//     int64_t bytes() const;                              of device memory
//   };
#pragma once

#include "device/comm/device_rank.h"
#include "device/tile/tile_form.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

namespace tilewire {

template <class Types>
class FusedKernelOf {
 public:
  using Problem = typename Types::Problem;
  using Plan = typename Types::Plan;
  using Context = typename Types::Context;
  using Operands = typename Types::Operands;
  using Parameters = typename Types::Parameters;
  using Form = typename Types::Form;

  // On the current device. Does all that is slow: tables into device memory, loading of the kernel, its attributes.
  // Throws Error(invalid_argument) naming what the kernel cannot do (operands in fp32), Error(resource) when the grid
  // does not fit the GPU. `variant`, what of the operands a kernel depends on: whether weights are [K, N], or whether calls have
  // documents of their own (attention).
  FusedKernelOf(const Problem& problem, const Plan& plan, const Context& context, const DeviceRank& rank,
                bool variant = false);
  ~FusedKernelOf();
  FusedKernelOf(FusedKernelOf&&) noexcept;
  FusedKernelOf& operator=(FusedKernelOf&&) noexcept;

  // The next call of the communicator, which the rank's state numbers; may be captured in a graph and replayed. All
  // ranks give the same hash of what they agreed on. Asynchronous: neither allocates nor waits. Calls of a communicator
  // follow each other in stream order. Throws Error(invalid_argument) naming the operand that does not fit,
  // Error(internal) when the launch fails. Any thread, one at a time; the device of the constructor must be current.
  void launch(uint64_t agreed_hash, const Operands& operands, cudaStream_t stream) const;

  // The parts of launch(), for tests that change what the kernel is given; without what leads and follows the kernel.
  Parameters parameters(uint64_t agreed_hash, const Operands& operands) const;
  void launch(Parameters& parameters, cudaStream_t stream) const;

  int32_t ctas() const;
  const Form& form() const;
  int64_t bytes() const;  // of device memory

 protected:
  using State = typename Types::State;
  const State& state() const { return *state_; }

 private:
  Parameters placed(uint64_t agreed_hash, const Operands& operands) const;

  std::unique_ptr<State> state_;
};

}  // namespace tilewire
