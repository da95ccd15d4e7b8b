#include "device/wire/wire.cuh"

#include "device/cuda_check.cuh"
#include "device/wire/wire_kernel.cuh"

#include <atomic>

namespace tilewire {

Wire::Wire(std::span<std::byte* const> arenas, std::span<const WireRing> rings)
    : rings_(rings.begin(), rings.end()), arenas_(arenas.size()) {
  const size_t arena_bytes = arenas.size() * sizeof(std::byte*), ring_bytes = rings.size() * sizeof(WireRing);
  check_cuda(cudaMalloc(&tables_, arena_bytes + ring_bytes), "allocating the tables of the wire");
  auto* base = static_cast<std::byte*>(tables_);
  check_cuda(cudaMemcpy(base, arenas.data(), arena_bytes, cudaMemcpyHostToDevice), "copying the tables of the wire");
  check_cuda(cudaMemcpy(base + arena_bytes, rings.data(), ring_bytes, cudaMemcpyHostToDevice),
             "copying the tables of the wire");
  check_cuda(cudaFuncSetAttribute(wire_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kWireSharedBytes),
             "asking for the shared memory of the wire");
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making the stream of the wire");
}

void Wire::start() {
  if (is_running_) return;
  for (const WireRing& ring : rings_) std::atomic_ref(ring.header->stop).store(0, std::memory_order_release);
  auto* base = static_cast<std::byte*>(tables_);
  const WireParameters parameters{reinterpret_cast<std::byte**>(base),
                                  reinterpret_cast<const WireRing*>(base + arenas_ * sizeof(std::byte*)),
                                  static_cast<int32_t>(rings_.size())};
  cudaLaunchAttribute pairs{};
  pairs.id = cudaLaunchAttributeClusterDimension;
  pairs.val.clusterDim = {2, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>((rings_.size() + 1) / 2 * 2));
  config.blockDim = dim3(kWireThreads);
  config.dynamicSmemBytes = kWireSharedBytes;
  config.stream = stream_;
  config.attrs = &pairs;
  config.numAttrs = 1;
  check_cuda(cudaLaunchKernelEx(&config, wire_kernel, parameters), "launching the wire");
  is_running_ = true;
}

Wire::~Wire() {
  stop();
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
  cudaFree(tables_);
}

void Wire::stop() noexcept {
  if (!is_running_) return;
  is_running_ = false;
  for (const WireRing& ring : rings_) std::atomic_ref(ring.header->stop).store(1, std::memory_order_release);
  cudaStreamSynchronize(stream_);
}

}  // namespace tilewire
