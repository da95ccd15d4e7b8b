// What reduction_device_op.h declares, for the source that builds it. Host code.
#pragma once

#include "operands/device_operands.h"
#include "operands/matrix_checks.h"
#include "planning/op_plans.h"
#include "reduction/fused_reduction_kernel.h"
#include "reduction/reduction_device_op.h"

namespace tilewire {

template <class Op, class KernelOp, class FusedPlan>
struct ReductionDeviceOp<Op, KernelOp, FusedPlan>::Kernel {
  FusedReductionKernel<KernelOp> fused;
};

template <class Op, class KernelOp, class FusedPlan>
KernelNames ReductionDeviceOp<Op, KernelOp, FusedPlan>::names() {
  static constexpr auto kNames = KernelOp::Roles::names();
  return {
      .op = Op::kName, .mismatch_advice = Op::kMismatchAdvice, .roles = kNames, .family_names = KernelOp::kFamilyNames};
}

template <class Op, class KernelOp, class FusedPlan>
void ReductionDeviceOp<Op, KernelOp, FusedPlan>::check(const Arguments& arguments, const Session&) {
  check_kernel_type(Op::kName, arguments.a.dtype);
  refuse_stand_in(Op::kName, arguments.stand_in);
  check_device_operands(Op::kName, arguments.a, arguments.b);
}

template <class Op, class KernelOp, class FusedPlan>
std::string ReductionDeviceOp<Op, KernelOp, FusedPlan>::variant(const Arguments& arguments) {
  return are_n_major(Op::kName, arguments.b) ? ", [K, N]" : ", [N, K]";
}

template <class Op, class KernelOp, class FusedPlan>
auto ReductionDeviceOp<Op, KernelOp, FusedPlan>::make_plan(const Problem& problem, const std::string& plan_json,
                                                           const PlanContext& context) -> Plan {
  return device_plan_of(tilewire::make_plan<FusedPlan>(problem, plan_json, context));
}

template <class Op, class KernelOp, class FusedPlan>
CallParts ReductionDeviceOp<Op, KernelOp, FusedPlan>::agreed(const Problem& problem, const Plan& plan) {
  return agreed_on_gpus(problem.agreed(), plan.fused->agreed());
}

template <class Op, class KernelOp, class FusedPlan>
auto ReductionDeviceOp<Op, KernelOp, FusedPlan>::make_kernel(const Problem& problem, const Plan& plan,
                                                             const PlanContext& context, const DeviceRank& rank,
                                                             const Arguments& arguments) -> std::shared_ptr<Kernel> {
  const bool n_major = are_n_major(Op::kName, arguments.b);
  return std::make_shared<Kernel>(Kernel{FusedReductionKernel<KernelOp>(problem, *plan.fused, context, rank, n_major)});
}

template <class Op, class KernelOp, class FusedPlan>
int64_t ReductionDeviceOp<Op, KernelOp, FusedPlan>::bytes(const Kernel& kernel) {
  return kernel.fused.bytes();
}

template <class Op, class KernelOp, class FusedPlan>
CallReport ReductionDeviceOp<Op, KernelOp, FusedPlan>::report(const Problem& problem, const Plan& plan,
                                                              const PlanContext& context) {
  return Op::report(typename KernelOp::Tables(problem, *plan.fused, context).schedule(1));
}

template <class Op, class KernelOp, class FusedPlan>
void ReductionDeviceOp<Op, KernelOp, FusedPlan>::launch(const Kernel& kernel, uint64_t agreed_hash,
                                                        const Operands& operands, void* stream) {
  kernel.fused.launch(agreed_hash,
                      {.a = rows_of(operands.a),
                       .b = as_stored(Op::kName, "b", operands.b[0]),
                       .out = operands.out,
                       .bias = operands.bias.empty() ? nullptr : operands.bias[0],
                       .bias_type = operands.bias_dtype,
                       .residual = operands.residual},
                      static_cast<cudaStream_t>(stream));
}

}  // namespace tilewire
