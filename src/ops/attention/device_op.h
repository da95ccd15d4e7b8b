// Ring attention on GPU ranks, described for executor/device_call.h. No CUDA header is needed to use this one.
//
// What a kernel cannot do and is refused by name: results of another dtype than q, tensors that the copy engine cannot
// follow (columns contiguous, addresses and strides of 16 bytes), scales that are not above 0, positions of 2^31 - 1 or more.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "executor/kernel_faults.h"
#include "ops/attention/attention.h"
#include "planning/device_plan_of.h"

namespace tilewire::attention {

struct FusedPlan;

struct DeviceOp {
  using Op = attention::Op;
  using Plan = DevicePlanOf<FusedPlan>;
  struct Kernel;

  static KernelNames names();
  static void check(const Arguments& arguments, const Session& session);
  static std::string variant(const Arguments& arguments);
  static Plan make_plan(const Problem& problem, const std::string& plan_json, const PlanContext& context);
  static CallParts agreed(const Problem& problem, const Plan& plan);
  static void check_problem(const Problem& problem);
  static void check_operands(const Op::Operands& operands);
  static std::shared_ptr<Kernel> make_kernel(const Problem& problem, const Plan& plan, const PlanContext& context,
                                             const DeviceRank& rank, const Arguments& arguments);
  static int64_t bytes(const Kernel& kernel);
  static CallReport launch(const Kernel& kernel, uint64_t agreed_hash, const Problem& problem,
                           const Op::Operands& operands, void* stream);
};

}  // namespace tilewire::attention
