// GEMM+AllReduce on GPU ranks: see reduction/reduction_device_op.h.
#pragma once

#include "ops/gemm_ar/gemm_ar.h"
#include "reduction/reduction_device_op.h"

namespace tilewire::gemm_ar {

struct KernelOp;   // device_launch.cuh
struct FusedPlan;  // device_plan.h

using DeviceOp = ReductionDeviceOp<Op, KernelOp, FusedPlan>;

}  // namespace tilewire::gemm_ar

extern template struct tilewire::ReductionDeviceOp<tilewire::gemm_ar::Op, tilewire::gemm_ar::KernelOp,
                                                   tilewire::gemm_ar::FusedPlan>;
