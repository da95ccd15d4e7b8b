// GEMM+ReduceScatter on GPU ranks: see reduction/reduction_device_op.h.
#pragma once

#include "ops/gemm_rs/gemm_rs.h"
#include "reduction/reduction_device_op.h"

namespace tilewire::gemm_rs {

struct KernelOp;   // device_launch.cuh
struct FusedPlan;  // device_plan.h

using DeviceOp = ReductionDeviceOp<Op, KernelOp, FusedPlan>;

}  // namespace tilewire::gemm_rs

extern template struct tilewire::ReductionDeviceOp<tilewire::gemm_rs::Op, tilewire::gemm_rs::KernelOp,
                                                   tilewire::gemm_rs::FusedPlan>;
