// Device memory, data and clocks of the GPU tests.
#pragma once

#include "device/cuda_check.cuh"

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace tilewire {

template <class T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(int64_t count) : count_(count) {
    check_cuda(cudaMalloc(&data_, static_cast<size_t>(count) * sizeof(T)), "allocating device memory");
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  ~DeviceBuffer() { cudaFree(data_); }

  T* data() const { return data_; }
  int64_t count() const { return count_; }

  void fill_bytes(int value) {
    check_cuda(cudaMemset(data_, value, static_cast<size_t>(count_) * sizeof(T)), "filling device memory");
  }
  std::vector<T> to_host() const {
    std::vector<T> host(static_cast<size_t>(count_));
    check_cuda(cudaMemcpy(host.data(), data_, host.size() * sizeof(T), cudaMemcpyDeviceToHost), "copying to the host");
    return host;
  }

 private:
  T* data_ = nullptr;
  int64_t count_ = 0;
};

}  // namespace tilewire
