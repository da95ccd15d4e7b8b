// How network cards reach an arena that the processor cannot: that of a GPU.
//
// Thread-safety: from any thread, as long as the arena lives.
#pragma once

#include <string>

#include "base/unique_fd.h"
#include "memory/arena.h"

namespace tilewire {

class NicAccess {
 public:
  virtual ~NicAccess() = default;

  // "" when cards can write into the arena so that kernels see it in order, or can be made to; else why not.
  virtual std::string obstacle() const = 0;
  // A dma-buf of whole pages of the host, by which a card registers them. The caller owns it. Throws Error(unavailable)
  // where GPU or driver have none, with what they lack.
  virtual UniqueFd dma_buf(ArenaRange range) const = 0;
  // Whether what a card has written may be seen by a running kernel later than what the host then tells it, unless flush()
  // comes in between.
  virtual bool needs_flush() const = 0;
  // When it returns, kernels of the arena's GPU see all that cards had written before. Of the node's other GPUs nothing
  // is promised. Throws Error(internal).
  virtual void flush() const = 0;
};

}  // namespace tilewire
