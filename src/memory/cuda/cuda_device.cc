#include "memory/cuda/cuda_device.h"

#include <fmt/format.h>
#include <tilewire/error.h>
#include <unistd.h>

#include <cstring>

#include "base/process_generation.h"

namespace tilewire {
namespace {

std::string device_text(int ordinal) { return fmt::format("CUDA device {}", ordinal); }

}  // namespace

CudaDevice::CudaDevice(int ordinal, const CudaDriver& driver)
    : driver_(driver), ordinal_(ordinal), owner_pid_(getpid()), owner_(process_generation()) {
  const std::string where = device_text(ordinal);
  check(driver_.init(0), {.name = "cuInit", .purpose = "start CUDA", .where = where});
  check(driver_.device(&device_, ordinal), {.name = "cuDeviceGet", .purpose = "find the GPU", .where = where});
  check_can_share();
  allocation_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocation_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  allocation_.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal};
  allocation_.allocFlags.gpuDirectRDMACapable =
      has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) ? 1 : 0;
  has_dma_buf_ = has(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
  sms_ = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  find_page_bytes();
  find_id();
  has_mps_ = has(CU_DEVICE_ATTRIBUTE_MPS_ENABLED);
  check(driver_.context_retain(&context_, device_),
        {.name = "cuDevicePrimaryCtxRetain", .purpose = "make a context on the GPU", .where = where});
  try {
    const CudaContext current(*this, where);
    check(driver_.stream_create(&stream_, CU_STREAM_NON_BLOCKING),
          {.name = "cuStreamCreate", .purpose = "make a stream on the GPU", .where = where});
  } catch (...) {
    give_back();
    throw;
  }
}

CudaDevice::~CudaDevice() { give_back(); }

void CudaDevice::give_back() noexcept {
  if (!is_usable()) return;
  if (stream_ != nullptr) {
    const CudaContext current(*this);
    driver_.stream_destroy(stream_);
  }
  driver_.context_release(device_);
}

bool CudaDevice::is_usable() const { return process_generation() == owner_; }

void CudaDevice::check_usable(const std::string& where) const {
  if (is_usable()) return;
  throw Error(ErrorKind::closed,
              {.what = "GPU memory belongs to the process that this one was forked from",
               .where = where,
               .values = fmt::format("process {}, forked from {}", getpid(), owner_pid_),
               .advice = "create a communicator in the child, and use spawn instead of fork: CUDA cannot be forked"});
}

int CudaDevice::count(const CudaDriver& driver) {
  int devices = 0;
  check_result(driver, driver.init(0), {.name = "cuInit", .purpose = "start CUDA"});
  check_result(driver, driver.device_count(&devices), {.name = "cuDeviceGetCount", .purpose = "count the GPUs"});
  if (devices > 0) return devices;
  throw Error(ErrorKind::unavailable, {.what = "CUDA can see no GPU",
                                       .where = "",
                                       .values = "0 devices",
                                       .limit = "",
                                       .advice = "look at CUDA_VISIBLE_DEVICES and nvidia-smi, or use CPU ranks"});
}

int CudaDevice::attribute(CUdevice_attribute attribute) const {
  int value = 0;
  check(driver_.device_attribute(&value, attribute, device_),
        {.name = "cuDeviceGetAttribute",
         .purpose = "ask what the GPU can do",
         .where = device_text(ordinal_),
         .values = fmt::format("attribute {}", static_cast<int>(attribute))});
  return value;
}

void CudaDevice::check_can_share() const {
  const bool has_mapping = has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  const bool has_descriptors = has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  if (has_mapping && has_descriptors) return;
  throw Error(ErrorKind::unavailable,
              {.what = "the GPU cannot share memory between processes by file descriptor",
               .where = device_text(ordinal_),
               .values = fmt::format("virtual memory management: {}, file descriptors: {}", has_mapping ? "yes" : "no",
                                     has_descriptors ? "yes" : "no"),
               .limit = "both are needed",
               .advice = "use a GPU and a driver that have them (not vGPU, not WSL), or CPU ranks"});
}

void CudaDevice::find_page_bytes() {
  size_t bytes = 0;
  check(driver_.granularity(&bytes, &allocation_, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        {.name = "cuMemGetAllocationGranularity",
         .purpose = "ask for the page size of the GPU",
         .where = device_text(ordinal_)});
  page_bytes_ = static_cast<int64_t>(bytes);
}

void CudaDevice::find_id() {
  CUuuid uuid{};
  check(driver_.device_uuid(&uuid, device_),
        {.name = "cuDeviceGetUuid", .purpose = "ask which GPU it is", .where = device_text(ordinal_)});
  static_assert(sizeof(uuid) == sizeof(id_));
  std::memcpy(id_.data(), &uuid, sizeof(uuid));
}

std::string CudaDevice::pci_address() const {
  char text[32] = {};
  check(driver_.device_pci_address(text, sizeof(text), device_),
        {.name = "cuDeviceGetPCIBusId", .purpose = "ask where the GPU is", .where = device_text(ordinal_)});
  return text;
}

void CudaDevice::check_reach(int other, const std::string& where) const {
  if (other == ordinal_) return;
  CUdevice other_device = 0;
  int can_access = 0;
  const std::string purpose = fmt::format("ask whether device {} reaches device {}", ordinal_, other);
  check(driver_.device(&other_device, other), {.name = "cuDeviceGet", .purpose = purpose, .where = where});
  check(driver_.can_access_peer(&can_access, device_, other_device),
        {.name = "cuDeviceCanAccessPeer", .purpose = purpose, .where = where});
  if (can_access != 0) return;
  throw Error(ErrorKind::unavailable,
              {.what = "kernels of this GPU cannot reach the memory of another rank of the node",
               .where = where,
               .values = fmt::format("that rank's memory is on device {}, this rank's on device {}", other, ordinal_),
               .limit = "peer access over NVLink or PCIe is needed within a node",
               .advice = "see nvidia-smi topo -p2p r; put such ranks on nodes of their own by TILEWIRE_LAYOUT"});
}

void CudaDevice::zero(CUdeviceptr at, int64_t bytes, const std::string& where) const {
  const CudaContext current(*this, where);
  check(driver_.set_bytes(at, 0, static_cast<size_t>(bytes), stream_), {.name = "cuMemsetD8Async",
                                                                        .purpose = "zero new memory",
                                                                        .where = where,
                                                                        .values = fmt::format("{} bytes", bytes)});
  finish_stream("zero new memory", bytes, where);
}

void CudaDevice::copy_to_gpu(CUdeviceptr to, const void* from, int64_t bytes, const std::string& where) const {
  const CudaContext current(*this, where);
  check(driver_.copy_to_gpu(to, from, static_cast<size_t>(bytes), stream_),
        {.name = "cuMemcpyHtoDAsync", .purpose = "copy to the GPU", .where = where});
  finish_stream("copy to the GPU", bytes, where);
}

void CudaDevice::copy_to_host(void* to, CUdeviceptr from, int64_t bytes, const std::string& where) const {
  const CudaContext current(*this, where);
  check(driver_.copy_to_host(to, from, static_cast<size_t>(bytes), stream_),
        {.name = "cuMemcpyDtoHAsync", .purpose = "copy from the GPU", .where = where});
  finish_stream("copy from the GPU", bytes, where);
}

void CudaDevice::finish_stream(const std::string& purpose, int64_t bytes, const std::string& where) const {
  check(driver_.stream_synchronize(stream_),
        {.name = "cuStreamSynchronize", .purpose = purpose, .where = where, .values = fmt::format("{} bytes", bytes)});
}

void CudaDevice::check(CUresult result, CudaCall call) const {
  if (result == CUDA_ERROR_OUT_OF_MEMORY && call.limit.empty()) {
    size_t free_bytes = 0;
    size_t all_bytes = 0;
    const CudaContext current(*this);
    if (current.is_current() && driver_.memory_info(&free_bytes, &all_bytes) == CUDA_SUCCESS) {
      call.limit = fmt::format("{} bytes can be had on device {}, which has {}", free_bytes, ordinal_, all_bytes);
    }
  }
  check_result(driver_, result, call);
}

CudaContext::CudaContext(const CudaDevice& device, const std::string& where) : device_(device) {
  const CUresult result = device.driver_.context_push(device.context_);
  is_pushed_ = result == CUDA_SUCCESS;
  if (is_pushed_) return;
  device.check(result, {.name = "cuCtxPushCurrent", .purpose = "make the GPU's context current", .where = where});
}

CudaContext::CudaContext(const CudaDevice& device) noexcept
    : device_(device),
      is_pushed_(device.context_ != nullptr && device.driver_.context_push(device.context_) == CUDA_SUCCESS) {}

CudaContext::~CudaContext() {
  CUcontext popped = nullptr;
  if (is_pushed_) device_.driver_.context_pop(&popped);
}

}  // namespace tilewire
