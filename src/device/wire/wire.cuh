// The wire between nodes that share a GPU: a resident kernel that moves what the proxies of all ranks ask for through
// their wire rings (schedule/wire_ring.h), one SM each. Host code.
//
// It runs on its own stream until it is stopped; meanwhile nothing may wait for the device as a whole, as freeing memory
// does.
#pragma once

#include "schedule/wire_ring.h"

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

namespace tilewire {

class Wire {
 public:
  // On the current device. `arenas`: of all ranks, as this process sees them; `rings`: one a rank, in pinned memory, at
  // the addresses of the host; `rings_on_gpu`: at those of kernels, where they differ.
  // Throws Error(resource) for memory.
  Wire(std::span<std::byte* const> arenas, std::span<const WireRing> rings,
       std::span<const WireRing> rings_on_gpu = {});
  ~Wire();  // stop(); what does not end keeps its memory
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  // Throws Error(internal) when the kernel cannot be launched. Nothing when it runs.
  void start();
  // Moves what is in the rings and ends the kernel. What comes later waits for the next start. Idempotent. False when it
  // does not end in time, or has ended with an error.
  bool stop() noexcept;
  // What has ended the kernel though nobody stopped it; cudaErrorNotReady while it runs.
  cudaError_t look() const { return cudaStreamQuery(stream_); }

  static constexpr std::chrono::seconds kStopLimit{10};

 private:
  std::vector<WireRing> rings_;
  size_t arenas_;
  void* tables_ = nullptr;
  cudaStream_t stream_ = nullptr;
  bool is_running_ = false;
};

}  // namespace tilewire
