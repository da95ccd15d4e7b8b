#include "ops/attention/device_op.h"

#include <algorithm>

#include "device/tile/tensor_map.cuh"
#include "operands/device_operands.h"
#include "operands/matrix_checks.h"
#include "ops/attention/device_launch.cuh"
#include "ops/attention/roles.h"

namespace tilewire::attention {

struct DeviceOp::Kernel {
  FusedKernel fused;
};

namespace {

void check_tensor(const char* name, const HeadsView& t) {
  if (t.batch > 0 && t.rows > 0 && t.heads > 0 && t.dim > 0) check_copyable(name, t);
}

// [batch * rows, heads * head dim] as the tensor that q is.
HeadsView as_heads(const MatrixView& m, const HeadsView& q) {
  const int64_t pitch = q.batch * q.rows > 1 ? m.row_stride : q.heads * q.dim;
  return {.data = m.data,
          .batch = q.batch,
          .rows = q.rows,
          .heads = q.heads,
          .dim = q.dim,
          .batch_stride = q.rows * pitch,
          .row_stride = pitch,
          .head_stride = q.dim,
          .dim_stride = 1,
          .dtype = m.dtype};
}

// Calls that say more than their shape.
bool has_own_sight(const Arguments& arguments) {
  return arguments.placement == Placement::given || !arguments.documents.empty() || !arguments.kv_documents.empty();
}

}  // namespace

KernelNames DeviceOp::names() {
  static constexpr auto kNames = Roles::names();
  return {.op = kCallName, .mismatch_advice = Op::kMismatchAdvice, .roles = kNames, .family_names = kFamilyNames};
}

void DeviceOp::check(const Arguments& arguments, const Session&) {
  refuse_stand_in(kCallName, arguments.stand_in);
  if (arguments.out_dtype != arguments.q.dtype) {
    refuse_argument(kCallName, "the result has a dtype of its own", to_string(arguments.out_dtype),
                    std::string(to_string(arguments.q.dtype)) + " on a GPU, as q has");
  }
  if (arguments.scale) check_kernel_scale(static_cast<float>(*arguments.scale));
  check_tensor("q", arguments.q);
  check_tensor("k", arguments.k);
  check_tensor("v", arguments.v);
}

std::string DeviceOp::variant(const Arguments& arguments) { return has_own_sight(arguments) ? ", packed" : ""; }

DeviceOp::Plan DeviceOp::make_plan(const Problem& problem, const std::string& plan_json, const PlanContext& context) {
  return device_plan_of(tilewire::make_plan<FusedPlan>(problem, plan_json, context));
}

CallParts DeviceOp::agreed(const Problem& problem, const Plan& plan) {
  return agreed_on_gpus(problem.agreed(), plan.fused->agreed());
}

void DeviceOp::check_problem(const Problem& problem) {
  for (const Positions& of_rank : problem.kv_positions()) {
    for (const PositionRun& run : of_rank) {
      if (run.begin + run.count <= INT32_MAX) continue;
      refuse_argument(kCallName, "a position is too large for a kernel", std::to_string(run.begin + run.count - 1),
                      "below 2^31 - 1");
    }
  }
}

void DeviceOp::check_operands(const Op::Operands& operands) { check_tensor("out", as_heads(operands.out, operands.q)); }

std::shared_ptr<DeviceOp::Kernel> DeviceOp::make_kernel(const Problem& problem, const Plan& plan,
                                                        const PlanContext& context, const DeviceRank& rank,
                                                        const Arguments& arguments) {
  return std::make_shared<Kernel>(Kernel{FusedKernel(problem, *plan.fused, context, rank, has_own_sight(arguments))});
}

int64_t DeviceOp::bytes(const Kernel& kernel) { return kernel.fused.bytes(); }

CallReport DeviceOp::launch(const Kernel& kernel, uint64_t agreed_hash, const Problem& problem,
                            const Op::Operands& operands, void* stream) {
  kernel.fused.launch(agreed_hash,
                      {.q = operands.q,
                       .k = operands.k,
                       .v = operands.v,
                       .out = as_heads(operands.out, operands.q),
                       .log_sums = static_cast<float*>(operands.lse.data),
                       .log_sum_pitch = operands.lse.row_stride,
                       .scale = operands.scale,
                       .problem = &problem},
                      static_cast<cudaStream_t>(stream));
  return kernel.fused.report(problem);
}

}  // namespace tilewire::attention
