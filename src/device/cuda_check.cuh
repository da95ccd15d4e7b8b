// What the CUDA runtime answers, as Error.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace tilewire {

// `what` is what was tried: "launching the GEMM". Throws Error(unavailable) where there is no usable GPU or driver,
// Error(resource) when memory ran out, else Error(internal); each with CUDA's own words.
void check_cuda(cudaError_t result, const std::string& what);

}  // namespace tilewire
