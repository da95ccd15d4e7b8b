// A GPU as this layer uses it: its primary context, the kind of memory that an arena is made of, and what it can do.
//
// Thread-safety: everything may be called from any thread. In a child made by fork() CUDA does not work: there
// is_usable() is false, check_usable() throws, and owners of CUDA objects forget them instead of giving them back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "memory/cuda/driver.h"
#include "memory/gpu_id.h"

namespace tilewire {

class CudaDevice {
 public:
  // Device `ordinal` of this process. Retains its primary context (the one that the CUDA runtime, and so PyTorch, uses).
  // `driver` outlives the device.
  // Throws Error(unavailable) when there is no such GPU or it lacks what an arena needs.
  CudaDevice(int ordinal, const CudaDriver& driver);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  // GPUs that this process can see. Throws Error(unavailable) when there is none.
  static int count(const CudaDriver& driver);

  const CudaDriver& driver() const { return driver_; }
  int ordinal() const { return ordinal_; }
  GpuId id() const { return id_; }
  // "0000:3f:00.0"
  std::string pci_address() const;
  int attribute(CUdevice_attribute attribute) const;
  // Whether this process shares the GPU with others under MPS, so that kernels of several run at once.
  bool has_mps() const { return has_mps_; }
  // False in a forked child.
  bool is_usable() const;
  // Throws Error(closed) where is_usable() is false.
  void check_usable(const std::string& where) const;

  // Memory of this GPU that other processes can map by descriptor, and network cards where the GPU allows that.
  CUmemAllocationProp allocation() const { return allocation_; }
  // Such memory is made, mapped and reserved in multiples of this.
  int64_t page_bytes() const { return page_bytes_; }
  // Whether network cards may reach that memory, and whether a dma-buf is the way to it.
  bool has_rdma() const { return allocation_.allocFlags.gpuDirectRDMACapable != 0; }
  bool has_dma_buf() const { return has_dma_buf_; }
  int32_t sms() const { return sms_; }

  // Throws Error(unavailable) when kernels of this GPU cannot reach memory of device `other`.
  void check_reach(int other, const std::string& where) const;
  // Zeroes memory of this GPU, on a stream of its own: waits for no kernel of the user. Needs no CudaContext.
  void zero(CUdeviceptr at, int64_t bytes, const std::string& where) const;
  // `bytes` of this GPU's memory to or from the host, on that stream too. They need no CudaContext either.
  void copy_to_gpu(CUdeviceptr to, const void* from, int64_t bytes, const std::string& where) const;
  void copy_to_host(void* to, CUdeviceptr from, int64_t bytes, const std::string& where) const;
  // As check_result; the error of memory that has run out says how much there is.
  void check(CUresult result, CudaCall call) const;

 private:
  friend class CudaContext;
  bool has(CUdevice_attribute which) const { return attribute(which) != 0; }
  void finish_stream(const std::string& purpose, int64_t bytes, const std::string& where) const;
  void check_can_share() const;
  void find_page_bytes();
  void find_id();
  void give_back() noexcept;

  const CudaDriver& driver_;
  int ordinal_;
  int owner_pid_;  // for errors
  uint64_t owner_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUmemAllocationProp allocation_{};
  int64_t page_bytes_ = 0;
  bool has_dma_buf_ = false;
  int32_t sms_ = 0;
  GpuId id_{};
  bool has_mps_ = false;
};

// The device's context is current for this thread as long as the object lives; then the one before is again.
class CudaContext {
 public:
  CudaContext(const CudaDevice& device, const std::string& where);
  // For destructors: without a context when that fails.
  explicit CudaContext(const CudaDevice& device) noexcept;
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  bool is_current() const { return is_pushed_; }

 private:
  const CudaDevice& device_;
  bool is_pushed_ = false;
};

}  // namespace tilewire
