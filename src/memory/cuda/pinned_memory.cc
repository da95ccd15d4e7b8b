#include "memory/cuda/pinned_memory.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <utility>

namespace tilewire {
namespace {

CudaCall call_for(const char* name, int64_t bytes, const std::string& where, const std::string& what) {
  return {.name = name,
          .purpose = fmt::format("pin host memory for the {}", what),
          .where = where,
          .values = fmt::format("{} bytes", bytes)};
}

}  // namespace

PinnedMemory PinnedMemory::make(std::shared_ptr<const CudaDevice> device, int64_t bytes, const std::string& where,
                                const std::string& what) {
  device->check_usable(where);
  PinnedMemory memory(std::move(device), bytes);
  const CudaDevice& gpu = *memory.device_;
  const CudaContext current(gpu, where);
  void* host = nullptr;
  // The memory is the host's: that the GPU has some left says nothing.
  CudaCall call = call_for("cuMemHostAlloc", bytes, where, what);
  call.limit = "host memory that can be page-locked";
  gpu.check(
      gpu.driver().host_alloc(&host, static_cast<size_t>(bytes), CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
      call);
  memory.host_ = static_cast<std::byte*>(host);
  memory.find_gpu_address(call);
  std::memset(host, 0, static_cast<size_t>(bytes));
  return memory;
}

PinnedMemory PinnedMemory::share(std::shared_ptr<const CudaDevice> device, int fd, int64_t bytes,
                                 const std::string& where, const std::string& what) {
  device->check_usable(where);
  PinnedMemory memory(std::move(device), bytes);
  const CudaDevice& gpu = *memory.device_;
  Mapping mapping = Mapping::share(fd, bytes, where, what);
  const CudaContext current(gpu, where);
  CudaCall call = call_for("cuMemHostRegister", bytes, where, what);
  call.limit = "host memory that can be page-locked";
  gpu.check(gpu.driver().host_register(mapping.base(), static_cast<size_t>(bytes),
                                       CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
            call);
  memory.shared_ = std::move(mapping);
  memory.host_ = memory.shared_.base();
  memory.find_gpu_address(call);
  return memory;
}

void PinnedMemory::find_gpu_address(const CudaCall& call) {
  CUdeviceptr address = 0;
  CudaCall find = call;
  find.name = "cuMemHostGetDevicePointer";
  device_->check(device_->driver().host_device_pointer(&address, host_, 0), find);
  on_gpu_ = std::bit_cast<std::byte*>(address);
}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  if (this == &other) return *this;
  reset();
  device_ = std::move(other.device_);
  shared_ = std::move(other.shared_);
  host_ = std::exchange(other.host_, nullptr);
  on_gpu_ = std::exchange(other.on_gpu_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void PinnedMemory::reset() noexcept {
  if (host_ != nullptr && device_->is_usable()) {
    const CudaContext current(*device_);
    if (shared_.base() != nullptr) {
      device_->driver().host_unregister(host_);
    } else {
      device_->driver().host_free(host_);
    }
  }
  host_ = nullptr;
  on_gpu_ = nullptr;
  shared_.reset();
  device_.reset();
}

}  // namespace tilewire
