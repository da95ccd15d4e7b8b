// Pinned host memory of a test, zeroed, which kernels and host threads share.
#pragma once

#include <cuda_runtime.h>

#include <cstring>

#include "device/cuda_check.cuh"

namespace tilewire {

class Pinned {
 public:
  explicit Pinned(size_t bytes) {
    check_cuda(cudaMallocHost(&base_, bytes), "allocating pinned memory");
    std::memset(base_, 0, bytes);
  }
  ~Pinned() { cudaFreeHost(base_); }
  Pinned(Pinned&& other) noexcept : base_(other.base_) { other.base_ = nullptr; }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  void* data() const { return base_; }

 private:
  void* base_ = nullptr;
};

}  // namespace tilewire
