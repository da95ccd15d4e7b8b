// The parts of base that GPU code uses, compiled by nvcc: byte math and ids, at compile time, on the host and on a GPU.
#include "base/bytes.h"
#include "base/device_test.cuh"
#include "base/ids.h"

#include <cstdio>

namespace {

static_assert(tilewire::round_up(1025, 512) == 1536);
static_assert(tilewire::Rank(3) == tilewire::Rank(3));

__global__ void byte_math(int64_t value, int64_t* results) {
  results[0] = tilewire::div_up(value, 4096);
  results[1] = tilewire::round_up(value, 4096);
  results[2] = tilewire::is_power_of_two(value) ? 1 : 0;
  results[3] = tilewire::Chunk(7) < tilewire::Chunk(8) ? 1 : 0;
}

}  // namespace

int main() {
  const int64_t value = (int64_t{5} << 32) + 1;
  const int64_t expected[4] = {(int64_t{5} << 20) + 1, (int64_t{5} << 32) + 4096, 0, 1};
  if (tilewire::div_up(value, 4096) != expected[0] || tilewire::round_up(value, 4096) != expected[1]) return 1;
  if (!tilewire::has_gpu()) return tilewire::kSkipped;
  int64_t* results = nullptr;
  if (cudaMallocManaged(&results, sizeof(expected)) != cudaSuccess) return 1;
  byte_math<<<1, 1>>>(value, results);
  if (cudaDeviceSynchronize() != cudaSuccess) return 1;
  int wrong = 0;
  for (int i = 0; i < 4; ++i) wrong += results[i] == expected[i] ? 0 : 1;
  std::printf("%d of 4 results are wrong\n", wrong);
  cudaFree(results);
  return wrong;
}
