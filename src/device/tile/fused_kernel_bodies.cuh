// The bodies of fused_kernel.cuh. Host code, for the source that has the op's State.
#pragma once

#include "device/comm/call_setup.cuh"
#include "device/tile/fused_kernel.cuh"

namespace tilewire {

template <class Types>
FusedKernelOf<Types>::FusedKernelOf(const Problem& problem, const Plan& plan, const Context& context,
                                    const DeviceRank& rank, bool variant)
    : state_(std::make_unique<State>(problem, plan, context, rank, variant)) {}
template <class Types>
FusedKernelOf<Types>::~FusedKernelOf() = default;
template <class Types>
FusedKernelOf<Types>::FusedKernelOf(FusedKernelOf&&) noexcept = default;
template <class Types>
FusedKernelOf<Types>& FusedKernelOf<Types>::operator=(FusedKernelOf&&) noexcept = default;

template <class Types>
typename Types::Parameters FusedKernelOf<Types>::parameters(uint64_t agreed_hash, const Operands& operands) const {
  state_->check(operands);
  return placed(agreed_hash, operands);
}

template <class Types>
typename Types::Parameters FusedKernelOf<Types>::placed(uint64_t agreed_hash, const Operands& operands) const {
  Parameters p{};
  state_->place(p, operands);
  name_call(p.call, agreed_hash, state_->rank());
  return p;
}

template <class Types>
void FusedKernelOf<Types>::launch(Parameters& parameters, cudaStream_t stream) const {
  state_->launch(parameters, stream);
}

template <class Types>
void FusedKernelOf<Types>::launch(uint64_t agreed_hash, const Operands& operands, cudaStream_t stream) const {
  state_->check(operands);
  if constexpr (requires { state_->lead(operands, stream); }) state_->lead(operands, stream);
  Parameters parameters = placed(agreed_hash, operands);
  launch(parameters, stream);
  if constexpr (requires { state_->follow(operands, stream); }) state_->follow(operands, stream);
}

template <class Types>
int32_t FusedKernelOf<Types>::ctas() const {
  return state_->ctas();
}
template <class Types>
const typename Types::Form& FusedKernelOf<Types>::form() const {
  return state_->form();
}
template <class Types>
int64_t FusedKernelOf<Types>::bytes() const {
  return state_->bytes();
}

}  // namespace tilewire
