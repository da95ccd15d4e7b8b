#include "ops/gemm_rs/device_op.h"

#include <fmt/format.h>

#include "operands/device_operands.h"
#include "operands/matrix_checks.h"
#include "ops/gemm_rs/device_launch.cuh"
#include "ops/gemm_rs/device_plan.h"
#include "ops/gemm_rs/roles.h"

namespace tilewire::gemm_rs {

struct DeviceOp::Kernel {
  FusedKernel fused;
};

KernelNames DeviceOp::names() {
  static constexpr auto kNames = Roles::names();
  return {.op = kCallName, .mismatch_advice = Op::kMismatchAdvice, .roles = kNames, .family_names = kFamilyNames};
}

void DeviceOp::check(const Arguments& arguments, const Session&) {
  check_kernel_type(kCallName, arguments.a.dtype);
  if (arguments.stand_in) refuse_argument(kCallName, "a kernel has no stand-in", "", "CPU ranks");
  check_device_operands(kCallName, arguments.a, arguments.b);
}

std::string DeviceOp::variant(const Arguments& arguments) {
  return are_n_major(kCallName, arguments.b) ? ", [K, N]" : ", [N, K]";
}

DeviceOp::Plan DeviceOp::make_plan(const Problem& problem, const std::string& plan_json, const PlanContext& context) {
  return device_plan_of(tilewire::make_plan<FusedPlan>(problem, plan_json, context));
}

CallParts DeviceOp::agreed(const Problem& problem, const Plan& plan) {
  return joined(joined(problem.agreed(), plan.fused->agreed()), {{"on GPUs"}});
}

// The result may lie anywhere: it is written by ordinary stores.
void DeviceOp::check_operands(const Op::Operands&) {}

std::shared_ptr<DeviceOp::Kernel> DeviceOp::make_kernel(const Problem& problem, const Plan& plan,
                                                        const PlanContext& context, const DeviceRank& rank,
                                                        const Arguments& arguments) {
  const bool n_major = are_n_major(kCallName, arguments.b);
  return std::make_shared<Kernel>(Kernel{FusedKernel(problem, *plan.fused, context, rank, n_major)});
}

CallReport DeviceOp::report(const Problem& problem, const Plan& plan, const PlanContext& context) {
  return Op::report(FusedTables(problem, *plan.fused, context).schedule(1));
}

void DeviceOp::launch(const Kernel& kernel, uint64_t agreed_hash, const Op::Operands& operands, void* stream) {
  kernel.fused.launch(agreed_hash,
                      {.a = rows_of(operands.a),
                       .b = as_stored(kCallName, "b", operands.b[0]),
                       .out = operands.out,
                       .bias = operands.bias.empty() ? nullptr : operands.bias[0],
                       .bias_type = operands.bias_dtype,
                       .residual = operands.residual},
                      static_cast<cudaStream_t>(stream));
}

}  // namespace tilewire::gemm_rs
