// Host memory that kernels reach too: control pages, command rings, fault records. Page-locked, at one address for the
// host and one for kernels, coherent; a kernel's access goes over the bus, so few threads should poll it.
//
// Thread-safety: as plain memory; close and move by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "memory/cuda/cuda_device.h"
#include "memory/mapping.h"

namespace tilewire {

class PinnedMemory {
 public:
  PinnedMemory() = default;
  // `bytes` of this process, zero. Both throw Error(resource, unavailable) with the bytes; `where` and `what` name the
  // use: "rank 3", "command ring 0".
  static PinnedMemory make(std::shared_ptr<const CudaDevice> device, int64_t bytes, const std::string& where,
                           const std::string& what);
  // All `bytes` of a memory file, for memory that processes share. It is taken from the machine at once.
  static PinnedMemory share(std::shared_ptr<const CudaDevice> device, int fd, int64_t bytes, const std::string& where,
                            const std::string& what);
  PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory() { reset(); }

  std::byte* host() const { return host_; }
  // The same memory for kernels of the device.
  std::byte* on_gpu() const { return on_gpu_; }
  int64_t bytes() const { return bytes_; }
  // Kernels that use it must have ended.
  void reset() noexcept;

 private:
  PinnedMemory(std::shared_ptr<const CudaDevice> device, int64_t bytes) : device_(std::move(device)), bytes_(bytes) {}
  void find_gpu_address(const CudaCall& call);

  std::shared_ptr<const CudaDevice> device_;
  Mapping shared_;  // for share()
  std::byte* host_ = nullptr;
  std::byte* on_gpu_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace tilewire
