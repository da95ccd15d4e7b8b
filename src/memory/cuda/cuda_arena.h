// The arena in GPU memory that processes share: one range of GPU addresses for the whole layout, memory mapped into it
// range by range, a descriptor a range for peers. The host touches none of it; its control page lies in pinned memory.
//
// CUDA is called at creation, in grow(), map_peer(), dma_buf() and close() alone, never during a call, and by no kernel
// that waits. Whoever calls close() or frees the last user memory sees to it that no kernel uses the arena any more.
// In a child made by fork() the arena can only be forgotten: what calls CUDA throws Error(closed).
//
// No CUDA header is needed to use this one.
#pragma once

#include <memory>
#include <vector>

#include "memory/arena.h"

namespace tilewire {

class CudaDevice;
class CudaSpace;
class PinnedMemory;

// Starts CUDA and opens GPU `ordinal` of this process. Throws Error(unavailable) that says what is missing: driver,
// GPU, or what this GPU lacks.
std::shared_ptr<const CudaDevice> open_cuda_device(int ordinal);

class CudaArena final : public Arena {
 public:
  // Reserves the addresses and commits the first memory, all zero. Both strides must be multiples of the GPU's page
  // (2 MiB today). Throws Error(resource) with bytes and what is left, Error(unavailable), Error(invalid_argument).
  CudaArena(std::shared_ptr<const CudaDevice> device, const ArenaConfig& config);
  ~CudaArena() override;

  bool is_host_accessible() const override { return false; }
  std::shared_ptr<const NicAccess> nic_access() const override;
  // control() as kernels of this GPU reach it: what the host tells them and they tell the host.
  std::byte* control_on_gpu() const;

  // A dma-buf of a part of ranges(), by which a network card registers it; whole pages of the host. The caller owns it,
  // and keeps it no longer than the arena. Throws Error(unavailable) where GPU or driver have none, with what they lack;
  // Error(invalid_argument) for a range that is not committed.
  UniqueFd dma_buf(ArenaRange range) const;

 private:
  void commit(ArenaRange range) override;
  void uncommit(ArenaRange range) noexcept override;
  void map_peer_range(Rank p, ArenaRange range, UniqueFd fd) override;
  void unmap_peers() noexcept override;
  void close_exports() noexcept override;
  void unmap_own() noexcept override;
  void check_peer_range(Rank p, ArenaRange range) const;
  void check_committed(ArenaRange range) const;

  std::shared_ptr<const CudaDevice> device_;
  std::unique_ptr<PinnedMemory> control_page_;
  std::unique_ptr<CudaSpace> own_;
  std::vector<UniqueFd> descriptors_;              // of exports()
  std::vector<std::unique_ptr<CudaSpace>> peers_;  // by rank; nullptr where nothing is mapped
};

}  // namespace tilewire
