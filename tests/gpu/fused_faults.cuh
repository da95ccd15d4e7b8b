// Calls of the fused AllGather+GEMM that end early or are refused, and what is beside them on the GPU. Host code.
#pragma once

namespace tilewire {

// Claims of gpu_program.cuh.
void test_fused_faults();

}  // namespace tilewire
