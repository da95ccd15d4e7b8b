// THE list of operations that have a kernel: the folder of each and the struct by which it describes its calls on GPU
// ranks (see executor/device_call.h). Where CUDA is, the build takes the kernels of the folders in the #include lines.
#pragma once

#include "executor/device_call.h"
#include "ops/ag_gemm/device_op.h"
#include "ops/attention/device_op.h"
#include "ops/gemm_ar/device_op.h"
#include "ops/gemm_rs/device_op.h"
#include "ops/moe_dispatch/device_op.h"

namespace tilewire {

using DeviceOps =
    DeviceOpTypes<ag_gemm::DeviceOp, gemm_rs::DeviceOp, gemm_ar::DeviceOp, attention::DeviceOp, moe_dispatch::DeviceOp>;

}  // namespace tilewire
