#include "ops/moe_dispatch/device_op.h"

#include <fmt/format.h>

#include "operands/device_operands.h"
#include "operands/matrix_checks.h"
#include "ops/moe_dispatch/device_launch.cuh"
#include "ops/moe_dispatch/device_limits.h"
#include "ops/moe_dispatch/device_plan.h"
#include "ops/moe_dispatch/roles.h"

namespace tilewire::moe_dispatch {

struct DeviceOp::Kernel {
  FusedKernel fused;
};

namespace {

Error remark_error(const CallRemark& remark) {
  const auto& [first, second, third] = remark.numbers;
  switch (static_cast<Remark>(remark.kind)) {
    case Remark::overflow: return overflow_error(Rank{static_cast<int32_t>(first)}, second, third);
    case Remark::no_expert:
      return Error(ErrorKind::invalid_argument, {.what = "topk_ids names an expert that is not there",
                                                 .where = kCallName,
                                                 .values = fmt::format("topk_ids[{}, {}] = {}", first, second, third),
                                                 .limit = "-1, or the number of an expert",
                                                 .advice = "-1 is no expert, and such numbers were taken for it"});
    case Remark::more_rows:
      return Error(ErrorKind::invalid_argument,
                   {.what = "topk_ids has changed between the count of its rows and their dispatch",
                    .where = kCallName,
                    .values = fmt::format("rank {} gets {} rows", first, second),
                    .limit = fmt::format("{} were counted", third),
                    .advice = "write to it in the order of the call's stream"});
  }
  return Error(ErrorKind::internal, {.what = "a remark of no kind", .where = kCallName});
}

// One array, stored as the first one is.
SlotArray slots_of(const std::vector<MatrixView>& w) {
  if (w.empty()) return {};
  const auto name = [](size_t e) { return fmt::format("w1[{}]", e); };
  const DeviceMatrix first = as_stored(kCallName, name(0), w[0]);
  const auto address = [&](size_t e) { return static_cast<const std::byte*>(w[e].data); };
  SlotArray slots{w[0].data,         static_cast<int64_t>(w.size()), first.rows, first.cols,
                  first.pitch_bytes, first.rows * first.pitch_bytes, first.type};
  if (w.size() == 1) return slots;
  slots.slot_bytes = address(1) - address(0);
  for (size_t e = 1; e < w.size(); ++e) {
    const bool is_alike = w[e].row_stride == w[0].row_stride && w[e].col_stride == w[0].col_stride;
    if (is_alike && address(e) - address(e - 1) == slots.slot_bytes) continue;
    refuse_argument(kCallName, name(e) + " does not lie as those before it",
                    fmt::format("{} bytes behind {}, strides of {} and {} elements", address(e) - address(e - 1),
                                name(e - 1), w[e].row_stride, w[e].col_stride),
                    fmt::format("{} bytes, strides of {} and {}", slots.slot_bytes, w[0].row_stride, w[0].col_stride),
                    "pass one array [own experts, H, I]");
  }
  if (first.rows > 0 && first.cols > 0 && (slots.slot_bytes <= 0 || slots.slot_bytes % 16 != 0)) {
    refuse_argument(kCallName, "w1 has a distance between experts that a kernel cannot follow",
                    fmt::format("{} bytes", slots.slot_bytes), "a multiple of 16 above 0",
                    "copy it into contiguous memory");
  }
  return slots;
}

bool is_n_major_of(const Arguments& arguments) {
  return arguments.w.empty() || is_n_major(kCallName, "w1[0]", arguments.w[0]);
}

}  // namespace

KernelNames DeviceOp::names() {
  static constexpr auto kNames = Roles::names();
  return {.op = kCallName,
          .mismatch_advice = Op::kMismatchAdvice,
          .roles = kNames,
          .family_names = kFamilyNames,
          .remark = &remark_error};
}

void DeviceOp::check(const Arguments& arguments, const Session&) {
  refuse_stand_in(kCallName, arguments.stand_in);
  check_device_rows(kCallName, "x", arguments.x);
  const SlotArray w = slots_of(arguments.w);
  if (w.slots > 0) check_stored("w1", {w.data, w.rows, w.cols, w.pitch_bytes, w.type});
}

std::string DeviceOp::variant(const Arguments& arguments) {
  if (arguments.counts_only) return "";
  return is_n_major_of(arguments) ? ", [H, I]" : ", [I, H]";
}

DeviceOp::Plan DeviceOp::make_plan(const Problem& problem, const std::string& plan_json, const PlanContext& context) {
  return device_plan_of(tilewire::make_plan<FusedPlan>(problem, plan_json, context));
}

CallParts DeviceOp::agreed(const Problem& problem, const Plan& plan) {
  return agreed_on_gpus(problem.agreed(), plan.fused->agreed());
}

void DeviceOp::check_operands(const Op::Operands& operands) { check_stored("out", rows_of(operands.out)); }

std::shared_ptr<DeviceOp::Kernel> DeviceOp::make_kernel(const Problem& problem, const Plan& plan,
                                                        const PlanContext& context, const DeviceRank& rank,
                                                        const Arguments& arguments) {
  return std::make_shared<Kernel>(Kernel{FusedKernel(problem, *plan.fused, context, rank, is_n_major_of(arguments))});
}

int64_t DeviceOp::bytes(const Kernel& kernel) { return kernel.fused.bytes(); }

CallReport DeviceOp::report(const Problem&, const Plan&, const PlanContext&) { return {}; }

void DeviceOp::launch(const Kernel& kernel, uint64_t agreed_hash, const Op::Operands& operands, void* stream) {
  const CallerRoutes& routes = operands.given_routes;
  kernel.fused.launch(agreed_hash,
                      {.x = rows_of(operands.x),
                       .routes = {.ids = routes.ids,
                                  .token_stride = routes.token_stride,
                                  .slot_stride = routes.slot_stride,
                                  .is_64_bit = routes.is_64_bit,
                                  .is_counted = operands.counted_rows >= 0},
                       .w = slots_of(operands.w),
                       .out = rows_of(operands.out),
                       .origins = operands.origins,
                       .offsets = operands.offsets},
                      static_cast<cudaStream_t>(stream));
}

void DeviceOp::read(const Kernel& kernel, const Op::Operands& operands) { *operands.counts = kernel.fused.counts(); }

}  // namespace tilewire::moe_dispatch
