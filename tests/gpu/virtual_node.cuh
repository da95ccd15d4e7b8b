// A node of several ranks in ONE process on ONE GPU, for the fused kernel: each rank has an arena of its own (plain
// device memory, so that peers are plain pointers), a stream, and a share of the SMs. What it cannot show: links
// between GPUs, their order and their speed; and peers compete for one memory.
#pragma once

#include "device_buffer.cuh"

#include "ops/ag_gemm/device_launch.cuh"
#include "schedule/topology_tables.h"

#include <cstdlib>
#include <memory>
#include <vector>

namespace tilewire {

// Before the first call of CUDA: kernels will wait for each other, so nothing may be loaded, and no stream may share a
// queue, while they run.
inline void prepare_for_waiting_kernels() {
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
}

class VirtualNode {
 public:
  // `half_bytes`: of gathered data. All flags start at `first - 1`: the epochs before have passed.
  VirtualNode(int32_t ranks, int32_t max_chunks, int64_t half_bytes, Epoch first)
      : topology_(TopologyTables::from_layout({ranks})) {
    layout_.flags = {.ranks = ranks, .max_chunks = max_chunks};
    layout_.half_stride_bytes = ArenaLayout::round_page(layout_.data_offset() + half_bytes);
    const std::vector<uint64_t> words(static_cast<size_t>(layout_.flags.words()), first - 1);
    for (int32_t r = 0; r < ranks; ++r) {
      arenas_.emplace_back(layout_.total_bytes());
      arenas_.back().fill_bytes(0);
      check_cuda(cudaMemcpy(arenas_.back().data() + ControlPage::kBytes, words.data(), words.size() * sizeof(uint64_t),
                            cudaMemcpyHostToDevice),
                 "setting flags");
      bases_.push_back(arenas_.back().data());
      check_cuda(cudaStreamCreateWithFlags(&streams_.emplace_back(), cudaStreamNonBlocking), "making a stream");
      check_cuda(cudaMallocHost(&faults_.emplace_back(), sizeof(FaultRecord)), "allocating pinned memory");
      *faults_.back() = FaultRecord{};
    }
  }
  VirtualNode(const VirtualNode&) = delete;
  VirtualNode& operator=(const VirtualNode&) = delete;
  ~VirtualNode() {
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
    for (FaultRecord* fault : faults_) cudaFreeHost(fault);
  }

  int32_t ranks() const { return topology_.view().ranks; }
  const ArenaLayout& layout() const { return layout_; }
  cudaStream_t stream(int32_t r) const { return streams_[static_cast<size_t>(r)]; }
  const FaultRecord& fault(int32_t r) const { return *faults_[static_cast<size_t>(r)]; }
  PlanContext context(int32_t r) const {
    return {.topology = topology_.view(), .me = Rank{r}, .arena = layout_, .machine = {}};
  }
  ag_gemm::FusedRank rank(int32_t r, uint64_t timeout_ns) const {
    return {bases_, faults_[static_cast<size_t>(r)], timeout_ns};
  }

  // NaN wherever data of call `epoch` will lie. Between calls.
  void poison_half(Epoch epoch) {
    for (std::byte* base : bases_) {
      check_cuda(cudaMemset(base + layout_.half_offset(epoch) + layout_.data_offset(), 0xff,
                            static_cast<size_t>(layout_.half_stride_bytes - layout_.data_offset())),
                 "poisoning a half");
    }
  }
  void wait() const {
    for (cudaStream_t stream : streams_) check_cuda(cudaStreamSynchronize(stream), "running the ranks");
  }

 private:
  TopologyTables topology_;
  ArenaLayout layout_;
  std::vector<DeviceBuffer<std::byte>> arenas_;
  std::vector<std::byte*> bases_;
  std::vector<cudaStream_t> streams_;
  std::vector<FaultRecord*> faults_;
};

}  // namespace tilewire
