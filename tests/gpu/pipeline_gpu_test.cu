// The pipeline object alone: one thread that fills, four warps that read, over many rounds, with delays on either side,
// so that a phase or a stage that is off by one shows as a wrong or a torn value.
#include "device_buffer.cuh"
#include "gpu_program.cuh"

#include "device/ptx/control.cuh"
#include "device/ptx/tma.cuh"
#include "device/sync/pipeline.cuh"

#include <cstdio>

namespace tilewire {
namespace {

constexpr int kStages = 3;
constexpr int kWarps = 4;
constexpr int kStageWords = 128;
constexpr int kPieces = 1000;

struct Delays {
  uint32_t producer_ns;
  uint32_t consumer_ns;
  uint32_t held;  // stages that a consumer holds before it releases the oldest
};

TILEWIRE_DEVICE void delay(uint32_t most_ns, uint32_t seed) {
  if (most_ns != 0) __nanosleep(seed * 2654435761u % most_ns);
}

// Piece i is 128 words i * 128 + lane. Counts words that are not what the reader expects.
__global__ void stream_pieces(const uint32_t* pieces, Delays delays, uint32_t* wrong) {
  __shared__ alignas(128) uint32_t stages[kStages][kStageWords];
  __shared__ alignas(8) uint64_t words[2 * kStages];
  const PipelineBarriers<kStages> barriers{ptx::shared_address(words)};
  if (threadIdx.x == 0) barriers.init(kWarps);
  __syncthreads();
  const uint32_t warp = threadIdx.x / 32;
  if (warp == kWarps) {
    if (!ptx::elect_one()) return;
    PipelineProducer<kStages> pipe(barriers);
    for (uint32_t i = 0; i < kPieces; ++i) {
      delay(delays.producer_ns, i);
      const auto slot = pipe.acquire(sizeof(stages[0]));
      ptx::bulk_load(ptx::shared_address(stages[slot.stage]), pieces + i * kStageWords, sizeof(stages[0]), slot.full);
      pipe.commit();
    }
    return;
  }
  PipelineConsumer<kStages> pipe(barriers);
  uint32_t bad = 0, last = 0;
  for (uint32_t i = 0; i < kPieces; ++i) {
    const uint32_t stage = pipe.wait();
    delay(delays.consumer_ns, i + 7 * warp);
    bad += stages[stage][threadIdx.x] != i * kStageWords + threadIdx.x;
    if (i > 0 && delays.held > 0) bad += stages[last][threadIdx.x] != (i - 1) * kStageWords + threadIdx.x;
    last = stage;
    __syncwarp();
    if (i >= delays.held) pipe.release();
  }
  if (bad != 0) atomicAdd(wrong, bad);
}

// Two pairs of warps take turns of five pieces each, and skip those of the other pair.
__global__ void stream_in_turns(const uint32_t* pieces, uint32_t* wrong) {
  constexpr uint32_t kTurnPieces = 5, kPairThreads = 64, kPairs = 2;
  __shared__ alignas(128) uint32_t stages[kStages][kStageWords];
  __shared__ alignas(8) uint64_t words[2 * kStages];
  const PipelineBarriers<kStages> barriers{ptx::shared_address(words)};
  if (threadIdx.x == 0) barriers.init(kPairThreads / 32);
  __syncthreads();
  if (threadIdx.x / 32 == kWarps) {
    if (!ptx::elect_one()) return;
    PipelineProducer<kStages> pipe(barriers);
    for (uint32_t i = 0; i < kPieces; ++i) {
      const auto slot = pipe.acquire(sizeof(stages[0]));
      ptx::bulk_load(ptx::shared_address(stages[slot.stage]), pieces + i * kStageWords, sizeof(stages[0]), slot.full);
      pipe.commit();
    }
    return;
  }
  const uint32_t pair = threadIdx.x / kPairThreads, lane = threadIdx.x % kPairThreads;
  PipelineConsumer<kStages> pipe(barriers);
  if (pair == 1) ptx::named_barrier_arrive(1, kPairs * kPairThreads);
  uint32_t bad = 0;
  for (uint32_t i = pair * kTurnPieces; i < kPieces; i += kPairs * kTurnPieces) {
    pipe.skip(i == 0 ? 0 : kTurnPieces);
    ptx::named_barrier_sync(1 + pair, kPairs * kPairThreads);
    for (uint32_t j = 0; j < kTurnPieces; ++j) {
      const uint32_t stage = pipe.wait();
      bad += stages[stage][lane] != (i + j) * kStageWords + lane;
      __syncwarp();
      pipe.release();
    }
    ptx::named_barrier_arrive(2 - pair, kPairs * kPairThreads);
  }
  if (bad != 0) atomicAdd(wrong, bad);
}

__global__ void number_words(uint32_t* words) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  words[i] = i;
}

int run() {
  DeviceBuffer<uint32_t> pieces(kPieces * kStageWords), wrong(1);
  wrong.fill_bytes(0);
  number_words<<<kPieces, kStageWords>>>(pieces.data());
  constexpr Delays kDelays[] = {{0, 0, 0},    {0, 0, 1},       {0, 0, 2},     {2000, 0, 0},
                                {0, 2000, 0}, {2000, 2000, 1}, {500, 2000, 2}};
  for (const Delays& delays : kDelays) {
    stream_pieces<<<16, 32 * (kWarps + 1)>>>(pieces.data(), delays, wrong.data());
    check_cuda(cudaDeviceSynchronize(), "streaming pieces");
  }
  stream_in_turns<<<16, 32 * (kWarps + 1)>>>(pieces.data(), wrong.data());
  check_cuda(cudaDeviceSynchronize(), "streaming in turns");
  const uint32_t bad = wrong.to_host()[0];
  std::printf("%u words are wrong\n", bad);
  return bad == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tilewire

int main() { return tilewire::run_gpu_program(tilewire::run); }
