// GEMM+ReduceScatter on GPU ranks, described for executor/device_call.h. No CUDA header is needed to use this one.
//
// What a kernel cannot do and is refused by name: fp32 operands, rows or columns of a and b that the copy engine cannot
// follow (contiguous, addresses and pitches of 16 bytes).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "executor/kernel_faults.h"
#include "ops/gemm_rs/gemm_rs.h"
#include "planning/device_plan_of.h"

namespace tilewire::gemm_rs {

struct FusedPlan;

struct DeviceOp {
  using Op = gemm_rs::Op;
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
  static CallReport report(const Problem& problem, const Plan& plan, const PlanContext& context);
  static void launch(const Kernel& kernel, uint64_t agreed_hash, const Op::Operands& operands, void* stream);
};

}  // namespace tilewire::gemm_rs
