#include "ops/gemm_ar/device_op.h"

#include "ops/gemm_ar/device_launch.cuh"
#include "reduction/reduction_device_op.cuh"

template struct tilewire::ReductionDeviceOp<tilewire::gemm_ar::Op, tilewire::gemm_ar::KernelOp,
                                            tilewire::gemm_ar::FusedPlan>;
