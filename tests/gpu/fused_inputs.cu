#include "fused_inputs.cuh"

#include "coded_values.h"

#include <cuda_bf16.h>

#include "device/cuda_check.cuh"
#include "device/ptx/control.cuh"

namespace tilewire {

namespace {

__global__ void advance_salt(int64_t* salt, uint64_t seed, uint32_t most_delay_us) {
  ++*salt;
  uint64_t random = static_cast<uint64_t>(*salt) * 0x9e3779b97f4a7c15 + seed * 0xbf58476d1ce4e5b9;
  random = (random ^ random >> 29) * 0x94d049bb133111eb;
  const uint64_t end_ns = ptx::global_timer_ns() + random % (uint64_t{most_delay_us} * 1000 + 1);
  while (ptx::global_timer_ns() < end_ns) __nanosleep(200);
}

__global__ void fill_shard(CodedShard s, const int64_t* salt) {
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < s.rows * s.k; i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t row = i / s.k, col = i % s.k;
    s.a[row * s.pitch + col] = __bfloat16_as_ushort(__float2bfloat16(coded_a(s.first + row, col, *salt)));
  }
}

}  // namespace

void enqueue_next_inputs(const CodedShard& shard, int64_t* salt, uint32_t most_delay_us, cudaStream_t stream) {
  advance_salt<<<1, 1, 0, stream>>>(salt, static_cast<uint64_t>(shard.first), most_delay_us);
  fill_shard<<<2, 256, 0, stream>>>(shard, salt);
  check_cuda(cudaGetLastError(), "writing inputs");
}

}  // namespace tilewire
