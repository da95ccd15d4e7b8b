// The CUDA driver's functions, found at run time: nothing here links to CUDA, so a machine without it loads the library
// and runs CPU ranks. All driver calls of this layer go through one table, which tests replace.
//
// Thread-safety: a table is constant once it is filled; the driver's functions may be called from any thread.
#pragma once

#include <cuda.h>

#include <string>

namespace tilewire {

// X(member, name): `member` of the table is the driver's function `name`.
#define TILEWIRE_CUDA_DRIVER_CALLS(X)                          \
  X(init, cuInit)                                              \
  X(driver_version, cuDriverGetVersion)                        \
  X(error_name, cuGetErrorName)                                \
  X(error_text, cuGetErrorString)                              \
  X(device, cuDeviceGet)                                       \
  X(device_count, cuDeviceGetCount)                            \
  X(device_attribute, cuDeviceGetAttribute)                    \
  X(device_uuid, cuDeviceGetUuid)                              \
  X(device_pci_address, cuDeviceGetPCIBusId)                   \
  X(can_access_peer, cuDeviceCanAccessPeer)                    \
  X(context_retain, cuDevicePrimaryCtxRetain)                  \
  X(context_release, cuDevicePrimaryCtxRelease)                \
  X(context_push, cuCtxPushCurrent)                            \
  X(context_pop, cuCtxPopCurrent)                              \
  X(memory_info, cuMemGetInfo)                                 \
  X(memory_alloc, cuMemAlloc)                                  \
  X(memory_free, cuMemFree)                                    \
  X(copy_to_gpu, cuMemcpyHtoDAsync)                            \
  X(copy_to_host, cuMemcpyDtoHAsync)                           \
  X(granularity, cuMemGetAllocationGranularity)                \
  X(address_reserve, cuMemAddressReserve)                      \
  X(address_free, cuMemAddressFree)                            \
  X(memory_create, cuMemCreate)                                \
  X(memory_release, cuMemRelease)                              \
  X(memory_map, cuMemMap)                                      \
  X(memory_unmap, cuMemUnmap)                                  \
  X(set_access, cuMemSetAccess)                                \
  X(export_handle, cuMemExportToShareableHandle)               \
  X(import_handle, cuMemImportFromShareableHandle)             \
  X(memory_properties, cuMemGetAllocationPropertiesFromHandle) \
  X(address_range_handle, cuMemGetHandleForAddressRange)       \
  X(flush_nic_writes, cuFlushGPUDirectRDMAWrites)              \
  X(stream_create, cuStreamCreate)                             \
  X(stream_destroy, cuStreamDestroy)                           \
  X(stream_synchronize, cuStreamSynchronize)                   \
  X(stream_wait_event, cuStreamWaitEvent)                      \
  X(stream_is_capturing, cuStreamIsCapturing)                  \
  X(event_create, cuEventCreate)                               \
  X(event_destroy, cuEventDestroy)                             \
  X(event_record, cuEventRecord)                               \
  X(event_query, cuEventQuery)                                 \
  X(set_bytes, cuMemsetD8Async)                                \
  X(host_alloc, cuMemHostAlloc)                                \
  X(host_free, cuMemFreeHost)                                  \
  X(host_register, cuMemHostRegister)                          \
  X(host_unregister, cuMemHostUnregister)                      \
  X(host_device_pointer, cuMemHostGetDevicePointer)

struct CudaDriver {
#define TILEWIRE_CUDA_DRIVER_MEMBER(member, name) decltype(&name) member = nullptr;
  TILEWIRE_CUDA_DRIVER_CALLS(TILEWIRE_CUDA_DRIVER_MEMBER)
#undef TILEWIRE_CUDA_DRIVER_MEMBER
};

// Loads `library` and fills a table; the library stays loaded. Does not start CUDA.
// Throws Error(unavailable) with the library and the loader's reason, the function that is missing, or the version
// found and the one needed.
CudaDriver load_cuda_driver(const char* library = "libcuda.so.1");

// That of this process, loaded by the first call. Throws as load_cuda_driver() does; the next call tries again.
const CudaDriver& cuda_driver();

// Throws Error(unavailable) when a driver of version `found` (13000 is 13.0) is too old for what this was built with.
void check_driver_version(int found);

// A call of the driver, for its error.
struct CudaCall {
  const char* name;      // "cuMemCreate"
  std::string purpose;   // "make memory of the arena": follows "cannot"
  std::string where{};   // "rank 3, arena"
  std::string values{};  // "4194304 bytes"
  std::string limit{};   // "81920 of 143771 MiB of device 0 are free"
  std::string advice{};  // in place of what the result alone suggests
};

// THE place where a CUresult becomes an Error: resource when something has run out, unavailable when device, driver or
// MPS server cannot do it at all, else internal; with CUDA's name and text of the result.
void check_result(const CudaDriver& driver, CUresult result, const CudaCall& call);

}  // namespace tilewire
