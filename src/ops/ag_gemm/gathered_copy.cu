#include "ops/ag_gemm/gathered_copy.cuh"

#include "device/comm/device_rank.h"
#include "device/cuda_check.cuh"
#include "device/ptx/memory_order.cuh"
#include "schedule/arena_layout.h"

namespace tilewire::ag_gemm {

namespace {

constexpr uint32_t kThreads = 256;
constexpr int64_t kElementsAPiece = 8;  // of 16 bits, in 16 bytes
constexpr uint32_t kNan = 0xffffffff;   // two of them, of either type

// A row by a warp: pieces of 16 bytes, then what is left of the row.
__global__ void __launch_bounds__(kThreads) copy_gathered(const __grid_constant__ GatheredCopy c) {
  const bool is_aborted = ptx::load_relaxed_sys(c.abort_word) != 0;
  const DeviceMatrix& gathered = c.gathered[ArenaLayout::half_of(c.state->epoch)];
  const int64_t pieces = gathered.cols / kElementsAPiece;
  const uint32_t lane = threadIdx.x % 32, warps = gridDim.x * (kThreads / 32);
  for (int64_t row = (blockIdx.x * kThreads + threadIdx.x) / 32; row < gathered.rows; row += warps) {
    const int64_t own = row - c.first_own_row;
    const bool is_own = own >= 0 && own < c.input.rows;
    const DeviceMatrix& source = is_own ? c.input : gathered;
    const auto* from = static_cast<const std::byte*>(source.data) + (is_own ? own : row) * source.pitch_bytes;
    std::byte* to = c.to + row * c.to_pitch_bytes;
    for (int64_t i = lane; i < pieces; i += 32) {
      const uint4 nan{kNan, kNan, kNan, kNan};
      reinterpret_cast<uint4*>(to)[i] = is_aborted ? nan : reinterpret_cast<const uint4*>(from)[i];
    }
    for (int64_t i = pieces * kElementsAPiece + lane; i < gathered.cols; i += 32) {
      reinterpret_cast<uint16_t*>(to)[i] =
          is_aborted ? static_cast<uint16_t>(kNan) : reinterpret_cast<const uint16_t*>(from)[i];
    }
  }
}

}  // namespace

void prepare_gathered_copy() {
  cudaFuncAttributes attributes;
  check_cuda(cudaFuncGetAttributes(&attributes, copy_gathered), "loading the kernel that copies gathered rows");
}

void launch_gathered_copy(const GatheredCopy& copy, int32_t ctas, cudaStream_t stream) {
  copy_gathered<<<static_cast<unsigned>(ctas), kThreads, 0, stream>>>(copy);
  check_cuda(cudaGetLastError(), "launching the copy of gathered rows");
}

}  // namespace tilewire::ag_gemm
