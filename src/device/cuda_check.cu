#include "device/cuda_check.cuh"

#include <tilewire/error.h>

namespace tilewire {

namespace {

ErrorKind kind_of(cudaError_t result) {
  switch (result) {
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInitializationError:
    case cudaErrorNoKernelImageForDevice: return ErrorKind::unavailable;
    case cudaErrorMemoryAllocation: return ErrorKind::resource;
    default: return ErrorKind::internal;
  }
}

}  // namespace

void check_cuda(cudaError_t result, const std::string& what) {
  if (result == cudaSuccess) return;
  throw Error(kind_of(result), {.what = what + " failed", .values = cudaGetErrorString(result)});
}

}  // namespace tilewire
