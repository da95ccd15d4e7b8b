#include "device/sync/global_timer.h"

#include "device/cuda_check.cuh"
#include "device/ptx/control.cuh"

#include <memory>

namespace tilewire {
namespace {

__global__ void note_time(uint64_t* to) { *to = ptx::global_timer_ns(); }

struct StreamEnd {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
struct PinnedEnd {
  void operator()(uint64_t* memory) const { cudaFreeHost(memory); }
};

}  // namespace

uint64_t read_global_timer() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream for the timer");
  const std::unique_ptr<CUstream_st, StreamEnd> own_stream(stream);
  void* memory = nullptr;
  check_cuda(cudaHostAlloc(&memory, sizeof(uint64_t), cudaHostAllocDefault), "making memory for the timer");
  const std::unique_ptr<uint64_t, PinnedEnd> noted(static_cast<uint64_t*>(memory));
  note_time<<<1, 1, 0, stream>>>(noted.get());
  check_cuda(cudaGetLastError(), "reading the global timer");
  check_cuda(cudaStreamSynchronize(stream), "reading the global timer");
  return *noted;
}

}  // namespace tilewire
