#include "device/sync/roll_call.h"

#include <tilewire/error.h>

#include <chrono>
#include <string>
#include <thread>

#include "device/cuda_check.cuh"
#include "device/cuda_stream.cuh"
#include "device/ptx/control.cuh"
#include "device/ptx/memory_order.cuh"

namespace tilewire {
namespace {

constexpr std::chrono::seconds kHostPatience{10};  // other work in front of it counts too

TILEWIRE_DEVICE void count(uint64_t* word) { atomicAdd_system(reinterpret_cast<unsigned long long*>(word), 1ull); }

__global__ void __launch_bounds__(32, 1) roll_call_kernel(const __grid_constant__ RollCallPart part) {
  RollCallPage& page = *part.page;
  if (threadIdx.x != 0 || ptx::load_acquire_sys(&page.missed) != 0) return;
  count(&page.came[part.participant]);
  count(&page.present);
  const uint64_t begin_ns = ptx::global_timer_ns();
  const auto all = static_cast<uint64_t>(part.expected);
  while (ptx::load_acquire_sys(&page.present) < all) {
    if (ptx::load_acquire_sys(&page.missed) != 0) return;
    if (ptx::global_timer_ns() - begin_ns < part.timeout_ns) continue;
    if (ptx::load_acquire_sys(&page.present) < all) count(&page.missed);
    return;
  }
}

// All of an SM's shared memory, so that no two CTAs share one.
int most_shared_bytes() {
  int device = 0, bytes = 0;
  check_cuda(cudaGetDevice(&device), "asking for the current GPU");
  check_cuda(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "asking for the shared memory of an SM");
  return bytes;
}

}  // namespace

void hold_roll_call(const RollCallPart& part) {
  const int shared_bytes = most_shared_bytes();
  check_cuda(cudaFuncSetAttribute(roll_call_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
             "asking for the shared memory of the roll-call");
  const CudaStream stream;
  cudaLaunchAttribute pairs{};
  pairs.id = cudaLaunchAttributeClusterDimension;
  pairs.val.clusterDim = {2, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(part.ctas));
  config.blockDim = dim3(32);
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream.get();
  config.attrs = &pairs;
  config.numAttrs = 1;
  check_cuda(cudaLaunchKernelEx(&config, roll_call_kernel, part), "launching the roll-call");
  const auto limit = std::chrono::steady_clock::now() + std::chrono::nanoseconds(part.timeout_ns) + kHostPatience;
  for (cudaError_t result; (result = cudaStreamQuery(stream.get())) != cudaSuccess;) {
    if (result != cudaErrorNotReady) check_cuda(result, "running the roll-call");
    if (std::chrono::steady_clock::now() >= limit) {
      throw Error(ErrorKind::deadline,
                  {.what = "the roll-call of kernels that share a GPU does not end",
                   .where = "",
                   .values = std::to_string(part.ctas) + " CTAs of this one",
                   .limit = "",
                   .advice = "end other programs on this GPU, and what was launched before the communicator was made"});
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace tilewire
