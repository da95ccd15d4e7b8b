// The calls on GPU ranks of an op that sums products over ranks, described for executor/device_call.h. No CUDA header is
// needed to use this one.
//
// What a kernel cannot do and is refused by name: fp32 operands, rows or columns of a and b that the copy engine cannot
// follow (contiguous, addresses and pitches of 16 bytes). Bias, residual and result may lie anywhere.
#pragma once

#include <tilewire/call.h>

#include <cstdint>
#include <memory>
#include <string>

#include "executor/kernel_faults.h"
#include "executor/session.h"
#include "planning/device_plan_of.h"

namespace tilewire {

// OpOf: the op's description for CPU ranks. KernelOp: that of its kernel (reduction/fused_reduction_kernel.h), which its
// device_op.cc knows; that one includes reduction_device_op.cuh and instantiates this.
template <class OpOf, class KernelOp, class FusedPlan>
struct ReductionDeviceOp {
  using Op = OpOf;
  using Problem = typename Op::Problem;
  using Arguments = typename Op::Arguments;
  using Operands = typename Op::Operands;
  using Plan = DevicePlanOf<FusedPlan>;
  struct Kernel;

  static KernelNames names();
  static void check(const Arguments& arguments, const Session& session);
  static std::string variant(const Arguments& arguments);
  static Plan make_plan(const Problem& problem, const std::string& plan_json, const PlanContext& context);
  static CallParts agreed(const Problem& problem, const Plan& plan);
  static void check_operands(const Operands&) {}
  static std::shared_ptr<Kernel> make_kernel(const Problem& problem, const Plan& plan, const PlanContext& context,
                                             const DeviceRank& rank, const Arguments& arguments);
  static int64_t bytes(const Kernel& kernel);
  static CallReport report(const Problem& problem, const Plan& plan, const PlanContext& context);
  static void launch(const Kernel& kernel, uint64_t agreed_hash, const Operands& operands, void* stream);
};

}  // namespace tilewire
