#include "device/sync/global_timer.h"

#include "device/cuda_check.cuh"
#include "device/ptx/control.cuh"

#include <memory>

namespace tilewire {
namespace {

__global__ void note_time(uint64_t* to) { *to = ptx::global_timer_ns(); }

// A stream and pinned memory.
class GlobalClock {
 public:
  GlobalClock() {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream for the timer");
    const cudaError_t result = cudaHostAlloc(reinterpret_cast<void**>(&noted_), sizeof(*noted_), cudaHostAllocDefault);
    if (result != cudaSuccess) cudaStreamDestroy(stream_);
    check_cuda(result, "making memory for the timer");
  }
  ~GlobalClock() {
    cudaFreeHost(noted_);
    cudaStreamDestroy(stream_);
  }
  GlobalClock(const GlobalClock&) = delete;
  GlobalClock& operator=(const GlobalClock&) = delete;

  uint64_t read() const {
    note_time<<<1, 1, 0, stream_>>>(noted_);
    check_cuda(cudaGetLastError(), "reading the global timer");
    check_cuda(cudaStreamSynchronize(stream_), "reading the global timer");
    return *noted_;
  }

 private:
  cudaStream_t stream_ = nullptr;
  uint64_t* noted_ = nullptr;
};

}  // namespace

GpuClock make_global_clock() {
  return [clock = std::make_shared<const GlobalClock>()] { return clock->read(); };
}

}  // namespace tilewire
