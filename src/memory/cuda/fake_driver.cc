#include "memory/cuda/fake_driver.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "base/process_generation.h"
#include "base/unique_fd.h"

namespace tilewire {
namespace {

constexpr const char* kFilePrefix = "/memfd:fake-gpu-";

// Physical memory: it lives as long as a handle or a mapping refers to it.
struct Memory {
  UniqueFd fd;
  size_t bytes = 0;
  int device = 0;
  int64_t* used_bytes = nullptr;  // of the process that made it; nullptr where it was imported

  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (used_bytes != nullptr) *used_bytes -= static_cast<int64_t>(bytes);
  }
};

struct Mapped {
  size_t bytes = 0;
  std::shared_ptr<Memory> memory;
  bool is_open = false;
};

struct State {
  std::mutex mutex;
  FakeGpuConfig config;
  uint64_t process = 0;  // its generation
  int64_t used_bytes = 0;
  uint64_t next_handle = 1;
  std::map<CUdeviceptr, size_t> spaces;
  std::map<uint64_t, std::shared_ptr<Memory>> handles;
  std::map<CUdeviceptr, Mapped> mapped;
  std::map<int, int> retained;  // contexts, by device
  int64_t pushed = 0;
  int64_t streams = 0;
  int64_t events = 0;
  std::map<CUdeviceptr, size_t> plain;  // memory that is not shared
  std::map<void*, size_t> pinned;
  std::map<void*, size_t> registered;
  int64_t calls_to_failure = 0;
  CUresult failure = CUDA_SUCCESS;
  std::string failed;
  int64_t broken_rules = 0;
  int64_t nic_flushes = 0;
};

State& state() {
  static State the_state;
  return the_state;
}

thread_local int64_t contexts_here = 0;  // pushed by this thread

void* pointer(CUdeviceptr address) { return std::bit_cast<void*>(address); }

CUresult broken(State& s, CUresult result) {
  ++s.broken_rules;
  return result;
}

// What every call that can fail begins with: the lock, and whether this call is the one that shall fail.
class Call {
 public:
  explicit Call(const char* name) : lock_(state().mutex) {
    State& s = state();
    if (process_generation() != s.process) {
      result_ = broken(s, CUDA_ERROR_NOT_INITIALIZED);
    } else if (s.calls_to_failure > 0 && --s.calls_to_failure == 0) {
      s.failed = name;
      result_ = s.failure;
    }
  }
  bool is_refused() const { return result_ != CUDA_SUCCESS; }
  CUresult result() const { return result_; }

 private:
  std::lock_guard<std::mutex> lock_;
  CUresult result_ = CUDA_SUCCESS;
};

#define FAKE_CALL(name)                        \
  State& s = state();                          \
  const Call call(name);                       \
  if (call.is_refused()) return call.result(); \
  static_cast<void>(s)

CUresult fake_init(unsigned int) {
  FAKE_CALL("cuInit");
  return s.config.devices > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
CUresult fake_driver_version(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}
CUresult fake_error_name(CUresult result, const char** text) {
  *text = result == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : nullptr;
  return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult fake_error_text(CUresult result, const char** text) {
  *text = result == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : nullptr;
  return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult fake_device(CUdevice* device, int ordinal) {
  FAKE_CALL("cuDeviceGet");
  if (ordinal < 0 || ordinal >= s.config.devices) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult fake_device_count(int* count) {
  FAKE_CALL("cuDeviceGetCount");
  *count = s.config.devices;
  return CUDA_SUCCESS;
}
CUresult fake_device_attribute(int* value, CUdevice_attribute attribute, CUdevice) {
  FAKE_CALL("cuDeviceGetAttribute");
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = s.config.sms; break;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: *value = s.config.has_mapping; break;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: *value = s.config.has_descriptors; break;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED: *value = s.config.has_rdma; break;
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED: *value = s.config.has_dma_buf; break;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING: *value = s.config.nic_write_order; break;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS: *value = s.config.has_nic_flush; break;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED: *value = s.config.has_mps; break;
    default: return broken(s, CUDA_ERROR_INVALID_VALUE);
  }
  return CUDA_SUCCESS;
}
CUresult fake_device_uuid(CUuuid* uuid, CUdevice device) {
  FAKE_CALL("cuDeviceGetUuid");
  *uuid = {};
  uuid->bytes[0] = static_cast<char>(device + 1);
  return CUDA_SUCCESS;
}
CUresult fake_device_pci_address(char* text, int bytes, CUdevice device) {
  FAKE_CALL("cuDeviceGetPCIBusId");
  std::snprintf(text, static_cast<size_t>(bytes), "0000:%02X:00.0", 0x3a + static_cast<int>(device));
  return CUDA_SUCCESS;
}
CUresult fake_can_access_peer(int* can, CUdevice from, CUdevice to) {
  FAKE_CALL("cuDeviceCanAccessPeer");
  *can = from == to || s.config.can_access_peers;
  return CUDA_SUCCESS;
}

CUresult fake_context_retain(CUcontext* context, CUdevice device) {
  FAKE_CALL("cuDevicePrimaryCtxRetain");
  ++s.retained[device];
  *context = std::bit_cast<CUcontext>(intptr_t{device} + 1);
  return CUDA_SUCCESS;
}
CUresult fake_context_release(CUdevice device) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.retained[device] == 0) return broken(s, CUDA_ERROR_INVALID_CONTEXT);
  if (--s.retained[device] == 0) s.retained.erase(device);
  return CUDA_SUCCESS;
}
CUresult fake_context_push(CUcontext) {
  FAKE_CALL("cuCtxPushCurrent");
  ++s.pushed;
  ++contexts_here;
  return CUDA_SUCCESS;
}
CUresult fake_context_pop(CUcontext*) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (contexts_here == 0) return broken(s, CUDA_ERROR_INVALID_CONTEXT);
  --s.pushed;
  --contexts_here;
  return CUDA_SUCCESS;
}
CUresult fake_memory_info(size_t* free_bytes, size_t* all_bytes) {
  FAKE_CALL("cuMemGetInfo");
  if (contexts_here == 0) return broken(s, CUDA_ERROR_INVALID_CONTEXT);
  *free_bytes = static_cast<size_t>(s.config.memory_bytes - s.used_bytes);
  *all_bytes = static_cast<size_t>(s.config.memory_bytes);
  return CUDA_SUCCESS;
}
CUresult fake_granularity(size_t* bytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  FAKE_CALL("cuMemGetAllocationGranularity");
  *bytes = static_cast<size_t>(s.config.page_bytes);
  return CUDA_SUCCESS;
}

bool is_whole_pages(const State& s, uint64_t bytes) { return bytes % static_cast<uint64_t>(s.config.page_bytes) == 0; }

CUresult fake_address_reserve(CUdeviceptr* at, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  FAKE_CALL("cuMemAddressReserve");
  if (bytes == 0 || !is_whole_pages(s, bytes)) return broken(s, CUDA_ERROR_INVALID_VALUE);
  const auto page = static_cast<size_t>(s.config.page_bytes);
  void* const taken = mmap(nullptr, bytes + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (taken == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto begin = reinterpret_cast<CUdeviceptr>(taken);
  const CUdeviceptr base = (begin + page - 1) / page * page;
  if (base > begin) munmap(taken, base - begin);
  if (base < begin + page) munmap(pointer(base + bytes), begin + page - base);
  s.spaces[base] = bytes;
  *at = base;
  return CUDA_SUCCESS;
}
CUresult fake_address_free(CUdeviceptr at, size_t bytes) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const auto space = s.spaces.find(at);
  if (space == s.spaces.end() || space->second != bytes) return broken(s, CUDA_ERROR_INVALID_VALUE);
  const auto inside = s.mapped.lower_bound(at);
  if (inside != s.mapped.end() && inside->first < at + bytes) return broken(s, CUDA_ERROR_INVALID_VALUE);
  munmap(pointer(at), bytes);
  s.spaces.erase(space);
  return CUDA_SUCCESS;
}

CUresult fake_memory_create(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* kind,
                            unsigned long long) {
  FAKE_CALL("cuMemCreate");
  if (bytes == 0 || !is_whole_pages(s, bytes) || kind->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      kind->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      (kind->allocFlags.gpuDirectRDMACapable != 0) != s.config.has_rdma) {
    return broken(s, CUDA_ERROR_INVALID_VALUE);
  }
  if (static_cast<int64_t>(bytes) > s.config.memory_bytes - s.used_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  auto memory = std::make_shared<Memory>();
  memory->fd = UniqueFd(memfd_create(fmt::format("fake-gpu-{}", kind->location.id).c_str(), MFD_CLOEXEC));
  if (ftruncate(memory->fd.get(), static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_OPERATING_SYSTEM;
  // New memory holds what others left there: enough of it to be seen.
  const std::array<char, 4096> left = [] {
    std::array<char, 4096> bytes_left{};
    bytes_left.fill('\xEE');
    return bytes_left;
  }();
  for (size_t at = 0; at < bytes; at += static_cast<size_t>(s.config.page_bytes)) {
    static_cast<void>(pwrite(memory->fd.get(), left.data(), left.size(), static_cast<off_t>(at)) < 0);
  }
  memory->bytes = bytes;
  memory->device = kind->location.id;
  memory->used_bytes = &s.used_bytes;
  s.used_bytes += static_cast<int64_t>(bytes);
  *handle = s.next_handle++;
  s.handles[*handle] = std::move(memory);
  return CUDA_SUCCESS;
}
CUresult fake_memory_release(CUmemGenericAllocationHandle handle) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.handles.erase(handle) == 1 ? CUDA_SUCCESS : broken(s, CUDA_ERROR_INVALID_VALUE);
}

bool is_free_space(const State& s, CUdeviceptr at, size_t bytes) {
  const auto space = s.spaces.upper_bound(at);
  if (space == s.spaces.begin()) return false;
  const auto [base, space_bytes] = *std::prev(space);
  if (at + bytes > base + space_bytes) return false;
  const auto next = s.mapped.lower_bound(at);
  if (next != s.mapped.end() && next->first < at + bytes) return false;
  return next == s.mapped.begin() || std::prev(next)->first + std::prev(next)->second.bytes <= at;
}

CUresult fake_memory_map(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                         unsigned long long) {
  FAKE_CALL("cuMemMap");
  const auto memory = s.handles.find(handle);
  if (memory == s.handles.end() || !is_whole_pages(s, at) || !is_whole_pages(s, bytes) || offset != 0 ||
      !is_free_space(s, at, bytes)) {
    return broken(s, CUDA_ERROR_INVALID_VALUE);
  }
  if (bytes > memory->second->bytes) return CUDA_ERROR_INVALID_VALUE;
  if (mmap(pointer(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->second->fd.get(), 0) == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  s.mapped[at] = {bytes, memory->second, false};
  return CUDA_SUCCESS;
}
CUresult fake_memory_unmap(CUdeviceptr at, size_t bytes) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const auto mapped = s.mapped.find(at);
  if (mapped == s.mapped.end() || mapped->second.bytes != bytes) return broken(s, CUDA_ERROR_INVALID_VALUE);
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  if (mmap(pointer(at), bytes, PROT_NONE, flags, -1, 0) == MAP_FAILED) return broken(s, CUDA_ERROR_UNKNOWN);
  s.mapped.erase(mapped);
  return CUDA_SUCCESS;
}
CUresult fake_set_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  FAKE_CALL("cuMemSetAccess");
  const auto mapped = s.mapped.find(at);
  if (mapped == s.mapped.end() || mapped->second.bytes != bytes || count != 1 ||
      access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    return broken(s, CUDA_ERROR_INVALID_VALUE);
  }
  if (access->location.id != mapped->second.memory->device && !s.config.can_access_peers) {
    return broken(s, CUDA_ERROR_INVALID_DEVICE);
  }
  mprotect(pointer(at), bytes, PROT_READ | PROT_WRITE);
  mapped->second.is_open = true;
  return CUDA_SUCCESS;
}

// As the real one's: open across exec.
CUresult fake_export_handle(void* fd, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType,
                            unsigned long long) {
  FAKE_CALL("cuMemExportToShareableHandle");
  const auto memory = s.handles.find(handle);
  if (memory == s.handles.end()) return broken(s, CUDA_ERROR_INVALID_VALUE);
  const int copy = dup(memory->second->fd.get());
  if (copy < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(fd) = copy;
  return CUDA_SUCCESS;
}
CUresult fake_import_handle(CUmemGenericAllocationHandle* handle, void* os_handle, CUmemAllocationHandleType) {
  FAKE_CALL("cuMemImportFromShareableHandle");
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(os_handle));
  std::array<char, 64> name{};
  struct stat info {};
  if (readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), name.data(), name.size() - 1) < 0 ||
      fstat(fd, &info) != 0 || !std::string(name.data()).starts_with(kFilePrefix)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto memory = std::make_shared<Memory>();
  memory->fd = UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  memory->bytes = static_cast<size_t>(info.st_size);
  memory->device = name[std::strlen(kFilePrefix)] - '0';
  *handle = s.next_handle++;
  s.handles[*handle] = std::move(memory);
  return CUDA_SUCCESS;
}
CUresult fake_memory_properties(CUmemAllocationProp* kind, CUmemGenericAllocationHandle handle) {
  FAKE_CALL("cuMemGetAllocationPropertiesFromHandle");
  const auto memory = s.handles.find(handle);
  if (memory == s.handles.end()) return broken(s, CUDA_ERROR_INVALID_VALUE);
  kind->location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = memory->second->device};
  return CUDA_SUCCESS;
}
CUresult fake_address_range_handle(void* fd, CUdeviceptr at, size_t bytes, CUmemRangeHandleType type,
                                   unsigned long long) {
  FAKE_CALL("cuMemGetHandleForAddressRange");
  const auto next = s.mapped.upper_bound(at);
  if (next == s.mapped.begin() || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || !s.config.has_dma_buf) {
    return broken(s, CUDA_ERROR_INVALID_VALUE);
  }
  const auto& [base, mapped] = *std::prev(next);
  if (at + bytes > base + mapped.bytes) return broken(s, CUDA_ERROR_INVALID_VALUE);
  *static_cast<int*>(fd) = dup(mapped.memory->fd.get());
  return CUDA_SUCCESS;
}

CUresult fake_flush_nic_writes(CUflushGPUDirectRDMAWritesTarget target, CUflushGPUDirectRDMAWritesScope scope) {
  FAKE_CALL("cuFlushGPUDirectRDMAWrites");
  const bool is_known =
      target == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX && scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER;
  if (contexts_here == 0 || !is_known || !s.config.has_nic_flush) return broken(s, CUDA_ERROR_INVALID_VALUE);
  ++s.nic_flushes;
  return CUDA_SUCCESS;
}

CUresult fake_stream_create(CUstream* stream, unsigned int flags) {
  FAKE_CALL("cuStreamCreate");
  if (contexts_here == 0 || flags != CU_STREAM_NON_BLOCKING) return broken(s, CUDA_ERROR_INVALID_CONTEXT);
  ++s.streams;
  *stream = std::bit_cast<CUstream>(intptr_t{77});
  return CUDA_SUCCESS;
}
CUresult fake_stream_destroy(CUstream) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  --s.streams;
  return CUDA_SUCCESS;
}
CUresult fake_stream_synchronize(CUstream) {
  FAKE_CALL("cuStreamSynchronize");
  return CUDA_SUCCESS;
}
CUresult fake_set_bytes(CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream) {
  FAKE_CALL("cuMemsetD8Async");
  const auto mapped = s.mapped.find(at);
  if (contexts_here == 0 || stream == nullptr || mapped == s.mapped.end() || !mapped->second.is_open ||
      bytes > mapped->second.bytes) {
    return broken(s, CUDA_ERROR_INVALID_VALUE);
  }
  std::memset(pointer(at), value, bytes);
  return CUDA_SUCCESS;
}

CUresult fake_stream_wait_event(CUstream, CUevent event, unsigned int) {
  FAKE_CALL("cuStreamWaitEvent");
  return event != nullptr ? CUDA_SUCCESS : broken(s, CUDA_ERROR_INVALID_HANDLE);
}
CUresult fake_stream_is_capturing(CUstream stream, CUstreamCaptureStatus* status) {
  FAKE_CALL("cuStreamIsCapturing");
  *status = stream == FakeGpu::captured_stream() ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult fake_event_create(CUevent* event, unsigned int) {
  FAKE_CALL("cuEventCreate");
  if (contexts_here == 0) return broken(s, CUDA_ERROR_INVALID_CONTEXT);
  ++s.events;
  *event = std::bit_cast<CUevent>(intptr_t{78});
  return CUDA_SUCCESS;
}
CUresult fake_event_destroy(CUevent) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  --s.events;
  return CUDA_SUCCESS;
}
CUresult fake_event_record(CUevent event, CUstream) {
  FAKE_CALL("cuEventRecord");
  return event != nullptr ? CUDA_SUCCESS : broken(s, CUDA_ERROR_INVALID_HANDLE);
}
CUresult fake_event_query(CUevent event) {
  FAKE_CALL("cuEventQuery");
  return event != nullptr ? CUDA_SUCCESS : broken(s, CUDA_ERROR_INVALID_HANDLE);
}

CUresult fake_memory_alloc(CUdeviceptr* at, size_t bytes) {
  FAKE_CALL("cuMemAlloc");
  if (contexts_here == 0) return broken(s, CUDA_ERROR_INVALID_CONTEXT);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memset(memory, 0xEE, bytes);
  *at = reinterpret_cast<CUdeviceptr>(memory);
  s.plain[*at] = bytes;
  return CUDA_SUCCESS;
}
CUresult fake_memory_free(CUdeviceptr at) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const auto plain = s.plain.find(at);
  if (contexts_here == 0 || plain == s.plain.end()) return broken(s, CUDA_ERROR_INVALID_VALUE);
  munmap(pointer(at), plain->second);
  s.plain.erase(plain);
  return CUDA_SUCCESS;
}
CUresult fake_copy_to_gpu(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  FAKE_CALL("cuMemcpyHtoDAsync");
  if (contexts_here == 0 || stream == nullptr) return broken(s, CUDA_ERROR_INVALID_CONTEXT);
  std::memcpy(pointer(to), from, bytes);
  return CUDA_SUCCESS;
}
CUresult fake_copy_to_host(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  FAKE_CALL("cuMemcpyDtoHAsync");
  if (contexts_here == 0 || stream == nullptr) return broken(s, CUDA_ERROR_INVALID_CONTEXT);
  std::memcpy(to, pointer(from), bytes);
  return CUDA_SUCCESS;
}

CUresult fake_host_alloc(void** at, size_t bytes, unsigned int) {
  FAKE_CALL("cuMemHostAlloc");
  if (contexts_here == 0) return broken(s, CUDA_ERROR_INVALID_CONTEXT);
  *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memset(*at, 0xEE, bytes);  // new memory is not zero
  s.pinned[*at] = bytes;
  return CUDA_SUCCESS;
}
CUresult fake_host_free(void* at) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const auto pinned = s.pinned.find(at);
  if (contexts_here == 0 || pinned == s.pinned.end()) return broken(s, CUDA_ERROR_INVALID_VALUE);
  munmap(at, pinned->second);
  s.pinned.erase(pinned);
  return CUDA_SUCCESS;
}
CUresult fake_host_register(void* at, size_t bytes, unsigned int) {
  FAKE_CALL("cuMemHostRegister");
  if (contexts_here == 0) return broken(s, CUDA_ERROR_INVALID_CONTEXT);
  s.registered[at] = bytes;
  return CUDA_SUCCESS;
}
CUresult fake_host_unregister(void* at) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (contexts_here == 0 || s.registered.erase(at) != 1) return broken(s, CUDA_ERROR_INVALID_VALUE);
  return CUDA_SUCCESS;
}
CUresult fake_host_device_pointer(CUdeviceptr* at, void* host, unsigned int) {
  FAKE_CALL("cuMemHostGetDevicePointer");
  if (!s.pinned.contains(host) && !s.registered.contains(host)) return broken(s, CUDA_ERROR_INVALID_VALUE);
  *at = reinterpret_cast<CUdeviceptr>(host);
  return CUDA_SUCCESS;
}
#undef FAKE_CALL

struct Live {
  const char* name;
  int64_t count;
};

std::array<Live, 10> live_objects(const State& s) {
  int64_t contexts = 0;
  for (const auto& [device, count] : s.retained) contexts += count;
  return {Live{"address ranges", std::ssize(s.spaces)},
          Live{"handles", std::ssize(s.handles)},
          Live{"mappings", std::ssize(s.mapped)},
          Live{"retained contexts", contexts},
          Live{"pushed contexts", s.pushed},
          Live{"streams", s.streams},
          Live{"events", s.events},
          Live{"plain memory", std::ssize(s.plain)},
          Live{"pinned ranges", std::ssize(s.pinned)},
          Live{"registered ranges", std::ssize(s.registered)}};
}

}  // namespace

const CudaDriver& FakeGpu::driver() {
  static const CudaDriver table = [] {
    CudaDriver t;
#define FAKE_MEMBER(member, name) t.member = fake_##member;
    TILEWIRE_CUDA_DRIVER_CALLS(FAKE_MEMBER)
#undef FAKE_MEMBER
    return t;
  }();
  return table;
}

void FakeGpu::start(const FakeGpuConfig& config) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.config = config;
  s.process = process_generation();
  s.mapped.clear();
  s.handles.clear();
  s.spaces.clear();
  s.retained.clear();
  s.plain.clear();
  s.pinned.clear();
  s.registered.clear();
  s.used_bytes = s.pushed = s.streams = s.events = s.broken_rules = s.nic_flushes = s.calls_to_failure = 0;
  s.failed.clear();
  contexts_here = 0;
}

int64_t FakeGpu::live() {
  int64_t sum = 0;
  for (const Live& l : live_objects(state())) sum += l.count;
  return sum;
}

std::string FakeGpu::live_text() {
  std::string text;
  for (const Live& l : live_objects(state())) {
    if (l.count != 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", l.count, l.name);
  }
  return text;
}

CUstream FakeGpu::captured_stream() { return std::bit_cast<CUstream>(intptr_t{79}); }

void FakeGpu::fail_call(int64_t n, CUresult result) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.calls_to_failure = n;
  s.failure = result;
  s.failed.clear();
}

int64_t FakeGpu::nic_flushes() { return state().nic_flushes; }
std::string FakeGpu::failed() { return state().failed; }
int64_t FakeGpu::broken_rules() { return state().broken_rules; }

}  // namespace tilewire
