#include "ops/gemm_rs/device_op.h"

#include "ops/gemm_rs/device_launch.cuh"
#include "reduction/reduction_device_op.cuh"

template struct tilewire::ReductionDeviceOp<tilewire::gemm_rs::Op, tilewire::gemm_rs::KernelOp,
                                            tilewire::gemm_rs::FusedPlan>;
