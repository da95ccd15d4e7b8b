// AllGather+GEMM on GPU ranks, described for executor/device_call.h. No CUDA header is needed to use this one.
//
// What a kernel cannot do and is refused by name: operands in fp32, rows or columns that the copy engine cannot follow
// (contiguous, addresses and pitches of 16 bytes), weights of one call that are stored in different orders.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "executor/kernel_faults.h"
#include "ops/ag_gemm/ag_gemm.h"
#include "planning/device_plan_of.h"

namespace tilewire::ag_gemm {

struct FusedPlan;

struct DeviceOp {
  using Op = ag_gemm::Op;
  using Plan = DevicePlanOf<FusedPlan>;
  struct Kernel;

  static KernelNames names();
  static void check(const Arguments& arguments, const Session& session);
  static std::string variant(const Arguments& arguments);
  static Plan make_plan(const Problem& problem, const std::string& plan_json, const PlanContext& context);
  static CallParts agreed(const Problem& problem, const Plan& plan);
  static void check_operands(const Op::Operands& operands);
  static std::shared_ptr<Kernel> make_kernel(const Problem& problem, const Plan& plan, const PlanContext& context,
                                             const DeviceRank& rank, const Arguments& arguments);
  static int64_t bytes(const Kernel& kernel);
  static CallReport report(const Problem& problem, const Plan& plan, const PlanContext& context);
  static void launch(const Kernel& kernel, uint64_t agreed_hash, const Op::Operands& operands, void* stream);
};

}  // namespace tilewire::ag_gemm
