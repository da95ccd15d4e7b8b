// A stream of its own on the current device, which waits for no other one.
#pragma once

#include "device/cuda_check.cuh"

namespace tilewire {

class CudaStream {
 public:
  CudaStream() { check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream"); }
  ~CudaStream() { cudaStreamDestroy(stream_); }  // what still runs in it runs on
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace tilewire
