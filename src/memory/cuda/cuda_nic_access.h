// How network cards reach the arena of a GPU rank.
#pragma once

#include <memory>
#include <string>

#include "memory/cuda/cuda_arena.h"
#include "memory/cuda/cuda_device.h"
#include "memory/nic_access.h"

namespace tilewire {

class CudaNicAccess final : public NicAccess {
 public:
  // Asks the GPU what it promises. `arena` outlives this.
  CudaNicAccess(std::shared_ptr<const CudaDevice> device, const CudaArena& arena);

  std::string obstacle() const override;
  UniqueFd dma_buf(ArenaRange range) const override { return arena_.dma_buf(range); }
  bool needs_flush() const override { return !has_order_; }
  void flush() const override;

 private:
  std::shared_ptr<const CudaDevice> device_;
  const CudaArena& arena_;
  bool has_order_ = false;
  bool has_flush_ = false;
};

}  // namespace tilewire
