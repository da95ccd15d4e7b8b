// FusedReductionKernel of an op, for the source that builds it. Host code.
#pragma once

#include "device/comm/call_setup.cuh"
#include "planning/op_plans.h"
#include "reduction/reduction_kernel.cuh"

namespace tilewire {

template <class Op>
struct FusedReductionKernel<Op>::State {
  typename Op::Tables tables;
  typename Op::Schedule schedule;  // tables on the device; epoch 0
  ReductionKernel kernel;
  typename Op::Own own;

  State(const Problem& problem, const Plan& plan, const PlanContext& context, const DeviceRank& rank, bool is_b_n_major)
      : tables(problem, checked(plan, problem, context), context),
        schedule(tables.schedule(0)),
        kernel(Op::entry(plan), Op::shape(problem, schedule.me()), problem.wire_dtype, is_b_n_major, rank,
               tables.ctas()) {
    kernel.place(schedule, Op::source_slots(schedule), schedule.sums());
    own.place(kernel.device(), schedule);
    kernel.device().upload();
  }

  static const Plan& checked(const Plan& plan, const Problem& problem, const PlanContext& context) {
    check_choice(plan, problem, context);
    return plan;
  }
};

template <class Op>
FusedReductionKernel<Op>::FusedReductionKernel(const Problem& problem, const Plan& plan, const PlanContext& context,
                                               const DeviceRank& rank, bool is_b_n_major)
    : state_(std::make_unique<State>(problem, plan, context, rank, is_b_n_major)) {}
template <class Op>
FusedReductionKernel<Op>::~FusedReductionKernel() = default;
template <class Op>
FusedReductionKernel<Op>::FusedReductionKernel(FusedReductionKernel&&) noexcept = default;
template <class Op>
FusedReductionKernel<Op>& FusedReductionKernel<Op>::operator=(FusedReductionKernel&&) noexcept = default;

template <class Op>
auto FusedReductionKernel<Op>::parameters(uint64_t agreed_hash, const ReductionKernelOperands& operands) const
    -> Parameters {
  const ReductionKernel& kernel = state_->kernel;
  kernel.check(operands);
  Parameters p{};
  kernel.place_factors(p.a, p.b, operands);
  p.schedule = state_->schedule;
  p.call = kernel.call();
  name_call(p.call, agreed_hash, kernel.rank());
  p.reduction = kernel.view();
  p.result = ReductionKernel::result_of(operands);
  p.stages_per_tile = kernel.stages_per_tile();
  state_->own.give(p);
  return p;
}

template <class Op>
void FusedReductionKernel<Op>::launch(Parameters& parameters, cudaStream_t stream) const {
  state_->kernel.launch(&parameters, stream);
}

template <class Op>
void FusedReductionKernel<Op>::launch(uint64_t agreed_hash, const ReductionKernelOperands& operands,
                                      cudaStream_t stream) const {
  Parameters parameters = this->parameters(agreed_hash, operands);
  launch(parameters, stream);
}

template <class Op>
int32_t FusedReductionKernel<Op>::ctas() const {
  return state_->kernel.ctas();
}
template <class Op>
const FormNumbers& FusedReductionKernel<Op>::form() const {
  return state_->kernel.form();
}

}  // namespace tilewire
