// THE list of operations: the folder of each and the struct by which it describes itself (see executor/op_call.h). The
// build takes the folders from the #include lines here.
#pragma once

#include "executor/op_call.h"
#include "ops/ag_gemm/ag_gemm.h"
#include "ops/attention/attention.h"
#include "ops/gemm_ar/gemm_ar.h"
#include "ops/gemm_rs/gemm_rs.h"
#include "ops/moe_dispatch/moe_dispatch.h"

namespace tilewire {

using Ops = OpTypes<ag_gemm::Op, gemm_rs::Op, gemm_ar::Op, attention::Op, moe_dispatch::Op>;

}  // namespace tilewire
