// Tables that a kernel looks at, in one piece of device memory. Host code.
#pragma once

#include "device/cuda_check.cuh"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace tilewire {

class DeviceTables {
 public:
  DeviceTables() = default;
  DeviceTables(const DeviceTables&) = delete;
  DeviceTables& operator=(const DeviceTables&) = delete;
  ~DeviceTables() { cudaFree(base_); }

  // `pointer` leads to so many values in host memory, and to their copies once they are uploaded. It stays where it is
  // until then.
  template <class T>
  void place(const T*& pointer, size_t count) {
    const size_t at = add(pointer, count);
    patches_.push_back([&pointer, at](std::byte* base) { pointer = reinterpret_cast<const T*>(base + at); });
  }
  // The same for a pointer to so many values that are zero at first, and the kernel's own.
  template <class T>
  void place_zeroed(T*& pointer, size_t count) {
    const size_t at = room(count * sizeof(T));
    patches_.push_back([&pointer, at](std::byte* base) { pointer = reinterpret_cast<T*>(base + at); });
  }

  // Once, behind all places.
  void upload() {
    uploaded_ = static_cast<int64_t>(bytes_.size());
    check_cuda(cudaMalloc(&base_, bytes_.size()), "allocating the tables of a call");
    check_cuda(cudaMemcpy(base_, bytes_.data(), bytes_.size(), cudaMemcpyHostToDevice), "copying the tables of a call");
    for (const auto& patch : patches_) patch(static_cast<std::byte*>(base_));
    patches_.clear();
    bytes_ = {};
  }
  // Of device memory.
  int64_t bytes() const { return uploaded_; }

 private:
  static constexpr size_t kAlignment = 128;  // what a tensor map needs

  size_t room(size_t bytes) {
    const size_t at = bytes_.size();
    bytes_.resize((at + bytes + kAlignment - 1) / kAlignment * kAlignment);
    return at;
  }
  template <class T>
  size_t add(const T* host, size_t count) {
    static_assert(alignof(T) <= kAlignment);
    const size_t at = room(count * sizeof(T));
    const auto* from = reinterpret_cast<const std::byte*>(host);
    std::copy(from, from + count * sizeof(T), bytes_.begin() + static_cast<std::ptrdiff_t>(at));
    return at;
  }

  std::vector<std::byte> bytes_;
  std::vector<std::function<void(std::byte*)>> patches_;
  void* base_ = nullptr;
  int64_t uploaded_ = 0;
};

}  // namespace tilewire
