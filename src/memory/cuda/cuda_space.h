// A range of GPU addresses reserved at once, into which memory is mapped piece by piece: an arena, own or of a peer.
// What is mapped stays at its address until it is unmapped or the space goes.
//
// Thread-safety: base from any thread; everything else by one thread at a time.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/unique_fd.h"
#include "memory/arena.h"
#include "memory/cuda/cuda_device.h"

namespace tilewire {

class CudaSpace {
 public:
  // Reserves `bytes`, a multiple of the device's pages. `where` is "rank 3, arena", `what` "own arena": for errors.
  // Throws Error(resource, unavailable).
  CudaSpace(std::shared_ptr<const CudaDevice> device, int64_t bytes, std::string where, std::string what);
  // Kernels that use it must have ended.
  ~CudaSpace();
  CudaSpace(const CudaSpace&) = delete;
  CudaSpace& operator=(const CudaSpace&) = delete;

  std::byte* base() const { return std::bit_cast<std::byte*>(base_); }
  // Whether some of the range is mapped.
  bool overlaps(ArenaRange range) const;

  // New memory of the device, zero; the descriptor by which other processes map it (closed when a program is started).
  // Throws Error(resource, unavailable); then nothing has changed.
  UniqueFd map_new(ArenaRange range);
  // Memory that rank `owner` has made and sent. Throws Error(mismatch) when it is not GPU memory of that size,
  // Error(unavailable) when kernels here cannot reach it; then nothing has changed.
  void map_import(ArenaRange range, const UniqueFd& fd, Rank owner);
  // A range as it was mapped; nothing when it is not.
  void unmap(ArenaRange range) noexcept;

 private:
  class Allocation;
  CUdeviceptr address(ArenaRange range) const { return base_ + static_cast<CUdeviceptr>(range.begin_bytes); }
  // `owner`: who has sent the memory; nothing for own memory.
  void map(const Allocation& allocation, ArenaRange range, std::optional<Rank> owner);
  void check_import(CUresult result, const char* call, ArenaRange range, Rank owner) const;

  std::shared_ptr<const CudaDevice> device_;
  std::string where_;
  std::string what_;
  CUdeviceptr base_ = 0;
  int64_t bytes_;
  std::vector<ArenaRange> mapped_;
};

}  // namespace tilewire
