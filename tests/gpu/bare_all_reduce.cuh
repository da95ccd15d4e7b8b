// What an all-reduce of few rows behind a product costs at least, on ranks that share a GPU: all of them read their weights
// at once, and then each stores its rows into a slot at every other rank, raises a flag there, waits for theirs and adds up
// what came, in rank order. Nothing else: no tiles, no call around it, no check of a peer.
#pragma once

#include "bare_read.cuh"
#include "bench_rows.cuh"
#include "device_buffer.cuh"

#include "device/ptx/memory_order.cuh"

#include <cuda_bf16.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <vector>

namespace tilewire {

constexpr int kBareThreads = 512;

__global__ void __launch_bounds__(kBareThreads) read_weights(const uint4* weights, int64_t count, uint32_t* never) {
  const int64_t first = int64_t{blockIdx.x} * kBareThreads + threadIdx.x;
  const uint32_t all = read_units(weights, count, first, int64_t{gridDim.x} * kBareThreads);
  if (all == 0x12345678) *never = all;
}

struct BareRank {
  const __nv_bfloat162* own;
  __nv_bfloat162* out;
  // By the half of a call and the source, at each rank; a flag for each CTA of a source.
  __nv_bfloat162* const* slots;  // [ranks]
  uint64_t* const* flags;        // [ranks]
  int64_t pairs;                 // of numbers
  int32_t me, ranks;
  uint64_t epoch;
};

// CTA c of every rank has the same part of the rows.
__global__ void __launch_bounds__(kBareThreads) push_and_sum(const __grid_constant__ BareRank r) {
  const int64_t pieces = r.pairs / 4, half = static_cast<int64_t>(r.epoch % 2) * r.ranks;
  const auto piece_of = [](const __nv_bfloat162* from, int64_t i) { return reinterpret_cast<const uint4*>(from)[i]; };
  const int64_t begin = pieces * blockIdx.x / gridDim.x, end = pieces * (blockIdx.x + 1) / gridDim.x;
  for (int64_t i = begin + threadIdx.x; i < end; i += kBareThreads) {
    const uint4 piece = piece_of(r.own, i);
    for (int32_t to = 0; to < r.ranks; ++to) {
      reinterpret_cast<uint4*>(r.slots[to] + (half + r.me) * r.pairs)[i] = piece;
    }
  }
  __syncthreads();
  if (threadIdx.x < static_cast<uint32_t>(r.ranks)) {
    const auto peer = static_cast<int32_t>(threadIdx.x);
    ptx::store_release_sys(r.flags[peer] + r.me * gridDim.x + blockIdx.x, r.epoch);
    while (ptx::load_acquire_sys(r.flags[r.me] + peer * gridDim.x + blockIdx.x) < r.epoch) {
    }
  }
  __syncthreads();
  for (int64_t i = begin + threadIdx.x; i < end; i += kBareThreads) {
    float2 sums[4] = {};
    for (int32_t from = 0; from < r.ranks; ++from) {
      const uint4 piece = piece_of(r.slots[r.me] + (half + from) * r.pairs, i);
      const uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
      for (int32_t j = 0; j < 4; ++j) {
        sums[j].x += __uint_as_float(words[j] << 16);
        sums[j].y += __uint_as_float(words[j] & 0xffff0000);
      }
    }
    for (int32_t j = 0; j < 4; ++j) r.out[4 * i + j] = __floats2bfloat162_rn(sums[j].x, sums[j].y);
  }
}

class BareAllReduce {
 public:
  // Each rank has `ctas` CTAs, and all of them room on the GPU at once. `rows` x `cols` of 16 bits, a multiple of 8.
  BareAllReduce(int32_t ranks, const BenchSize& size, int32_t ctas) : size_(size), ctas_(ctas) {
    for (int32_t r = 0; r < ranks; ++r) {
      ranks_.push_back(std::make_unique<PerRank>(size, ranks, ctas, r));
      slots_.push_back(ranks_.back()->slots.data());
      flags_.push_back(ranks_.back()->flags.data());
    }
    check_cuda(cudaMemcpy(slot_table_.data(), slots_.data(), slots_.size() * sizeof(slots_[0]), cudaMemcpyHostToDevice),
               "copying the slots");
    check_cuda(cudaMemcpy(flag_table_.data(), flags_.data(), flags_.size() * sizeof(flags_[0]), cudaMemcpyHostToDevice),
               "copying the flags");
    check_cuda(cudaDeviceSynchronize(), "preparing a bare all-reduce");
  }

  TimeUs weights() {
    return [this](int count) {
      return time_us(count, [&](PerRank& rank) {
        read_weights<<<ctas_, kBareThreads, 0, rank.stream>>>(reinterpret_cast<const uint4*>(rank.weights.data()),
                                                              size_.cols * size_.depth / 8, rank.never.data());
      });
    };
  }
  TimeUs exchange() {
    return [this](int count) {
      return time_us(count, [&](PerRank& rank) {
        const BareRank of{.own = rank.own.data(),
                          .out = rank.out.data(),
                          .slots = slot_table_.data(),
                          .flags = flag_table_.data(),
                          .pairs = size_.rows * size_.cols / 2,
                          .me = rank.me,
                          .ranks = static_cast<int32_t>(ranks_.size()),
                          .epoch = ++rank.epoch};
        push_and_sum<<<ctas_, kBareThreads, 0, rank.stream>>>(of);
      });
    };
  }
  // Throws if a rank has not the sum: rank r gives r + 1 everywhere.
  void check() const {
    const auto ranks = static_cast<float>(ranks_.size());
    for (const auto& rank : ranks_) {
      std::vector<__nv_bfloat162> out(static_cast<size_t>(size_.rows * size_.cols / 2));
      check_cuda(cudaMemcpy(out.data(), rank->out.data(), out.size() * sizeof(out[0]), cudaMemcpyDeviceToHost),
                 "reading a sum");
      for (const __nv_bfloat162& pair : out) {
        if (__low2float(pair) != ranks * (ranks + 1) / 2 || __high2float(pair) != ranks * (ranks + 1) / 2) {
          throw std::runtime_error("the bare all-reduce is wrong");
        }
      }
    }
  }

 private:
  struct PerRank {
    DeviceBuffer<__nv_bfloat16> weights;
    DeviceBuffer<__nv_bfloat162> own, out, slots;
    DeviceBuffer<uint64_t> flags;
    DeviceBuffer<uint32_t> never{1};
    cudaStream_t stream = nullptr;
    int32_t me;
    uint64_t epoch = 0;

    PerRank(const BenchSize& size, int32_t ranks, int32_t ctas, int32_t rank)
        : weights(size.cols * size.depth),
          own(size.rows * size.cols / 2),
          out(size.rows * size.cols / 2),
          slots(size.rows * size.cols / 2 * 2 * ranks),
          flags(int64_t{ranks} * ctas),
          me(rank) {
      weights.fill_bytes(0);
      flags.fill_bytes(0);
      const std::vector<__nv_bfloat16> ones(static_cast<size_t>(size.rows * size.cols),
                                            __float2bfloat16(static_cast<float>(rank + 1)));
      check_cuda(cudaMemcpy(own.data(), ones.data(), ones.size() * sizeof(ones[0]), cudaMemcpyHostToDevice),
                 "filling the rows of a rank");
      check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    }
    ~PerRank() { cudaStreamDestroy(stream); }
  };

  double time_us(int count, const std::function<void(PerRank&)>& launch) {
    check_cuda(cudaDeviceSynchronize(), "waiting for the ranks");
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) {
      for (const auto& rank : ranks_) launch(*rank);
    }
    check_cuda(cudaDeviceSynchronize(), "running the ranks");
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / count;
  }

  BenchSize size_;
  int32_t ctas_;
  std::vector<std::unique_ptr<PerRank>> ranks_;
  std::vector<__nv_bfloat162*> slots_;
  std::vector<uint64_t*> flags_;
  DeviceBuffer<__nv_bfloat162*> slot_table_{64};
  DeviceBuffer<uint64_t*> flag_table_{64};
};

}  // namespace tilewire
