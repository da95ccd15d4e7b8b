// MoE dispatch + grouped GEMM on GPU ranks, described for executor/device_call.h. No CUDA header is needed to use this one.
//
// A kernel reads the routes itself; a number that is neither -1 nor that of an expert counts as -1. That, and rows that are
// too many, are remarks of the kernel, which Session::check() throws.
//
// What a kernel cannot do and is refused by name: results of another dtype than x, rows or columns that the copy engine
// cannot follow (contiguous, addresses and pitches of 16 bytes), weights that do not lie at equal distances in one order,
// and experts that do not fit its shared memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "executor/kernel_faults.h"
#include "ops/moe_dispatch/moe_dispatch.h"
#include "planning/device_plan_of.h"

namespace tilewire::moe_dispatch {

struct FusedPlan;

struct DeviceOp {
  using Op = moe_dispatch::Op;
  using Arguments = moe_dispatch::Arguments;
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
  // What moves the host does not know: no bytes.
  static CallReport report(const Problem& problem, const Plan& plan, const PlanContext& context);
  static void launch(const Kernel& kernel, uint64_t agreed_hash, const Op::Operands& operands, void* stream);
  static bool is_read(const Op::Operands& operands) { return operands.counts != nullptr; }
  static void read(const Kernel& kernel, const Op::Operands& operands);
};

}  // namespace tilewire::moe_dispatch
