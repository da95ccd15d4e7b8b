#include "ops/ag_gemm/device_op.h"

#include <fmt/format.h>

#include "operands/device_operands.h"
#include "operands/matrix_checks.h"
#include "ops/ag_gemm/device_launch.cuh"
#include "ops/ag_gemm/device_plan.h"
#include "ops/ag_gemm/roles.h"

namespace tilewire::ag_gemm {

struct DeviceOp::Kernel {
  FusedKernel fused;
};

namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& values, const std::string& limit) {
  refuse_argument(kCallName, what, values, limit);
}

void check_types(const Arguments& arguments) {
  const DataType type = arguments.a.dtype;
  check_kernel_type(kCallName, type);
  if (!arguments.bias.empty() && arguments.bias_dtype != DataType::fp32 && arguments.bias_dtype != type) {
    refuse("bias has a dtype of its own", to_string(arguments.bias_dtype),
           fmt::format("fp32 or {} on a GPU", to_string(type)));
  }
}

}  // namespace

KernelNames DeviceOp::names() {
  static constexpr auto kNames = Roles::names();
  return {.op = kCallName, .mismatch_advice = Op::kMismatchAdvice, .roles = kNames, .family_names = kFamilyNames};
}

void DeviceOp::check(const Arguments& arguments, const Session&) {
  check_types(arguments);
  refuse_stand_in(kCallName, arguments.stand_in);
  check_device_operands(kCallName, arguments.a, arguments.b);
}

std::string DeviceOp::variant(const Arguments& arguments) {
  return are_n_major(kCallName, arguments.b) ? ", [K, N]" : ", [N, K]";
}

DeviceOp::Plan DeviceOp::make_plan(const Problem& problem, const std::string& plan_json, const PlanContext& context) {
  return device_plan_of(tilewire::make_plan<FusedPlan>(problem, plan_json, context));
}

CallParts DeviceOp::agreed(const Problem& problem, const Plan& plan) {
  return agreed_on_gpus(problem.agreed(), plan.fused->choice.agreed());
}

void DeviceOp::check_operands(const Op::Operands& operands) {
  for (size_t w = 0; w < operands.out.size(); ++w) {
    check_stored(argument_name("out", w, operands.out.size()), rows_of(operands.out[w]));
  }
  check_stored("gathered", rows_of(operands.gathered));
}

std::shared_ptr<DeviceOp::Kernel> DeviceOp::make_kernel(const Problem& problem, const Plan& plan,
                                                        const PlanContext& context, const DeviceRank& rank,
                                                        const Arguments& arguments) {
  return std::make_shared<Kernel>(
      Kernel{FusedKernel(problem, *plan.fused, context, rank, are_n_major(kCallName, arguments.b))});
}

int64_t DeviceOp::bytes(const Kernel& kernel) { return kernel.fused.bytes(); }

CallReport DeviceOp::report(const Problem& problem, const Plan& plan, const PlanContext& context) {
  return Op::report(FusedTables(problem, *plan.fused, context).schedule(1));
}

void DeviceOp::launch(const Kernel& kernel, uint64_t agreed_hash, const Op::Operands& operands, void* stream) {
  std::vector<DeviceMatrix> b, out;
  b.reserve(operands.b.size());
  out.reserve(operands.b.size());
  for (size_t w = 0; w < operands.b.size(); ++w) {
    b.push_back(as_stored(kCallName, argument_name("b", w, operands.b.size()), operands.b[w]));
    out.push_back(rows_of(operands.out[w]));
  }
  kernel.fused.launch(agreed_hash,
                      {.a = rows_of(operands.a),
                       .b = b,
                       .out = out,
                       .gathered = rows_of(operands.gathered),
                       .bias = operands.bias,
                       .bias_type = operands.bias_dtype},
                      static_cast<cudaStream_t>(stream));
}

}  // namespace tilewire::ag_gemm
