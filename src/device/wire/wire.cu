#include "device/wire/wire.cuh"

#include "device/cuda_check.cuh"
#include "device/wire/wire_kernel.cuh"

#include <atomic>
#include <thread>

namespace tilewire {

Wire::Wire(std::span<std::byte* const> arenas, std::span<const WireRing> rings, std::span<const WireRing> rings_on_gpu)
    : rings_(rings.begin(), rings.end()), arenas_(arenas.size()) {
  const size_t arena_bytes = arenas.size() * sizeof(std::byte*), ring_bytes = rings.size() * sizeof(WireRing);
  check_cuda(cudaMalloc(&tables_, arena_bytes + ring_bytes), "allocating the tables of the wire");
  auto* base = static_cast<std::byte*>(tables_);
  check_cuda(cudaMemcpy(base, arenas.data(), arena_bytes, cudaMemcpyHostToDevice), "copying the tables of the wire");
  const WireRing* seen = rings_on_gpu.empty() ? rings.data() : rings_on_gpu.data();
  check_cuda(cudaMemcpy(base + arena_bytes, seen, ring_bytes, cudaMemcpyHostToDevice),
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
  config.gridDim = dim3(static_cast<unsigned>(wire_ctas(static_cast<int32_t>(rings_.size()))));
  config.blockDim = dim3(kWireThreads);
  config.dynamicSmemBytes = kWireSharedBytes;
  config.stream = stream_;
  config.attrs = &pairs;
  config.numAttrs = 1;
  check_cuda(cudaLaunchKernelEx(&config, wire_kernel, parameters), "launching the wire");
  is_running_ = true;
}

Wire::~Wire() {
  if (!stop()) return;  // freeing memory would wait for it
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
  cudaFree(tables_);
}

bool Wire::stop() noexcept {
  if (!is_running_) return true;
  for (const WireRing& ring : rings_) std::atomic_ref(ring.header->stop).store(1, std::memory_order_release);
  const auto limit = std::chrono::steady_clock::now() + kStopLimit;
  cudaError_t result = cudaStreamQuery(stream_);
  while (result == cudaErrorNotReady && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    result = cudaStreamQuery(stream_);
  }
  is_running_ = result == cudaErrorNotReady;
  return result == cudaSuccess;
}

}  // namespace tilewire
