#include "memory/cuda/cuda_space.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/ids_format.h"

namespace tilewire {
namespace {

std::string range_text(ArenaRange range) { return fmt::format("range [{}, +{})", range.begin_bytes, range.bytes); }

// What the driver says of a descriptor that is no GPU memory, or of memory that is smaller than the range.
bool is_wrong_memory(CUresult result) {
  return result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_UNKNOWN ||
         result == CUDA_ERROR_INVALID_DEVICE || result == CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

// A reference to GPU memory. It may go as soon as the memory is mapped: mappings and descriptors hold the memory too.
class CudaSpace::Allocation {
 public:
  Allocation(const CudaDevice& device, CUmemGenericAllocationHandle handle) : device_(device), handle_(handle) {}
  ~Allocation() { device_.driver().memory_release(handle_); }
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  CUmemGenericAllocationHandle handle() const { return handle_; }

 private:
  const CudaDevice& device_;
  CUmemGenericAllocationHandle handle_;
};

CudaSpace::CudaSpace(std::shared_ptr<const CudaDevice> device, int64_t bytes, std::string where, std::string what)
    : device_(std::move(device)), where_(std::move(where)), what_(std::move(what)), bytes_(bytes) {
  device_->check_usable(where_);
  device_->check(device_->driver().address_reserve(&base_, static_cast<size_t>(bytes_), 0, 0, 0),
                 {.name = "cuMemAddressReserve",
                  .purpose = fmt::format("reserve GPU addresses for the {}", what_),
                  .where = where_,
                  .values = fmt::format("{} bytes", bytes_),
                  .limit = "the GPU's address space, which all processes' spaces of this context share",
                  .advice = "lower TILEWIRE_ARENA_RESERVE_BYTES and TILEWIRE_USER_ARENA_RESERVE_BYTES on all ranks"});
}

CudaSpace::~CudaSpace() {
  if (!device_->is_usable()) return;
  while (!mapped_.empty()) unmap(mapped_.back());
  device_->driver().address_free(base_, static_cast<size_t>(bytes_));
}

bool CudaSpace::overlaps(ArenaRange range) const {
  return std::any_of(mapped_.begin(), mapped_.end(), [range](ArenaRange m) {
    return range.begin_bytes < m.begin_bytes + m.bytes && m.begin_bytes < range.begin_bytes + range.bytes;
  });
}

UniqueFd CudaSpace::map_new(ArenaRange range) {
  device_->check_usable(where_);
  const CudaDriver& driver = device_->driver();
  const std::string bytes_text = fmt::format("{} more bytes asked", range.bytes);
  const CUmemAllocationProp kind = device_->allocation();
  CUmemGenericAllocationHandle handle = 0;
  device_->check(driver.memory_create(&handle, static_cast<size_t>(range.bytes), &kind, 0),
                 {.name = "cuMemCreate",
                  .purpose = fmt::format("make GPU memory for the {}", what_),
                  .where = where_,
                  .values = bytes_text});
  const Allocation allocation(*device_, handle);
  int fd = -1;
  device_->check(driver.export_handle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                 {.name = "cuMemExportToShareableHandle",
                  .purpose = fmt::format("make a descriptor of the {}", what_),
                  .where = where_,
                  .values = bytes_text,
                  .advice = "raise ulimit -n when descriptors have run out"});
  UniqueFd shared(fd);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  map(allocation, range, std::nullopt);
  try {
    device_->zero(address(range), range.bytes, where_);
  } catch (...) {
    unmap(range);
    throw;
  }
  return shared;
}

void CudaSpace::map_import(ArenaRange range, const UniqueFd& fd, Rank owner) {
  device_->check_usable(where_);
  const CudaDriver& driver = device_->driver();
  CUmemGenericAllocationHandle handle = 0;
  void* const os_handle = std::bit_cast<void*>(intptr_t{fd.get()});
  const CUresult imported = fd.is_open()
                                ? driver.import_handle(&handle, os_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
                                : CUDA_ERROR_INVALID_VALUE;
  check_import(imported, "cuMemImportFromShareableHandle", range, owner);
  const Allocation allocation(*device_, handle);
  CUmemAllocationProp kind{};
  check_import(driver.memory_properties(&kind, handle), "cuMemGetAllocationPropertiesFromHandle", range, owner);
  const bool is_on_gpu = kind.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  check_import(is_on_gpu ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE, "its place", range, owner);
  device_->check_reach(kind.location.id, where_);
  map(allocation, range, owner);
}

void CudaSpace::map(const Allocation& allocation, ArenaRange range, std::optional<Rank> owner) {
  const CudaDriver& driver = device_->driver();
  const auto bytes = static_cast<size_t>(range.bytes);
  mapped_.reserve(mapped_.size() + 1);
  const CUresult mapped = driver.memory_map(address(range), bytes, 0, allocation.handle(), 0);
  if (owner) check_import(mapped, "cuMemMap", range, *owner);
  device_->check(mapped, {.name = "cuMemMap",
                          .purpose = fmt::format("map GPU memory of the {}", what_),
                          .where = where_,
                          .values = range_text(range)});
  const CUmemAccessDesc access{.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_->ordinal()},
                               .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const CUresult opened = driver.set_access(address(range), bytes, &access, 1);
  if (opened != CUDA_SUCCESS) driver.memory_unmap(address(range), bytes);
  device_->check(opened, {.name = "cuMemSetAccess",
                          .purpose = fmt::format("open the {} to the GPU", what_),
                          .where = where_,
                          .values = range_text(range)});
  mapped_.push_back(range);
}

void CudaSpace::unmap(ArenaRange range) noexcept {
  const auto at = std::find(mapped_.begin(), mapped_.end(), range);
  if (at == mapped_.end()) return;
  mapped_.erase(at);
  if (device_->is_usable()) device_->driver().memory_unmap(address(range), static_cast<size_t>(range.bytes));
}

void CudaSpace::check_import(CUresult result, const char* call, ArenaRange range, Rank owner) const {
  const CudaCall what{
      .name = call, .purpose = fmt::format("map the {}", what_), .where = where_, .values = range_text(range)};
  if (!is_wrong_memory(result)) return device_->check(result, what);
  throw Error(ErrorKind::mismatch,
              {.what = fmt::format("what rank {} sent is not its arena", owner),
               .where = where_,
               .values = fmt::format("{}, {} gave {}", range_text(range), call, static_cast<int>(result)),
               .limit = "must be GPU memory of that many bytes, made by a GPU that this process sees",
               .advice = "give all ranks of a node the same CUDA_VISIBLE_DEVICES and the same options of the arena"});
}

}  // namespace tilewire
