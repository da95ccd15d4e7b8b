// Tests only: the fake driver as the library that the loader looks for, with two GPUs. A program that finds its folder
// first runs over host memory where no GPU is: everything but kernels, for the CUDA runtime asks for more than it has.
#include <cuda.h>

#include <string_view>

#include "memory/cuda/fake_driver.h"

namespace {

const bool has_started = (tilewire::FakeGpu::start(), true);

}  // namespace

extern "C" __attribute__((visibility("default"))) CUresult cuGetProcAddress(const char* symbol, void** function, int,
                                                                            cuuint64_t,
                                                                            CUdriverProcAddressQueryResult* result) {
  const tilewire::CudaDriver& driver = tilewire::FakeGpu::driver();
  const std::string_view wanted = symbol;
  *function = nullptr;
#define TILEWIRE_FAKE_FIND(member, name) \
  if (wanted == #name) *function = reinterpret_cast<void*>(driver.member);
  TILEWIRE_CUDA_DRIVER_CALLS(TILEWIRE_FAKE_FIND)
#undef TILEWIRE_FAKE_FIND
  const bool is_there = has_started && *function != nullptr;
  if (result != nullptr) *result = is_there ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return is_there ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
