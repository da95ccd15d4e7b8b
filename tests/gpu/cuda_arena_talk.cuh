// A kernel in which two ranks write to each other's arena and check what came, epoch by epoch, with the library's own
// publish and consume; and what a rank needs to run it.
#pragma once

#include "device_buffer.cuh"

#include "device/sync/wait.cuh"
#include "memory/cuda/cuda_arena.h"
#include "memory/cuda/cuda_device.h"
#include "memory/cuda/pinned_memory.h"

#include <string>

namespace tilewire {

struct Talk {
  std::byte* mine = nullptr;
  std::byte* theirs = nullptr;
  ArenaLayout layout;
  int32_t rank = 0;  // the other is 1 - rank
  Epoch first = 1;
  int64_t rounds = 0;
  int64_t offset = 0;  // of the letters in a half
  int64_t words = 0;   // of 32 bits, a letter
};

TILEWIRE_DEVICE uint32_t letter_word(int32_t from, Epoch epoch, int64_t i) {
  return static_cast<uint32_t>(epoch) * 2654435761u + static_cast<uint32_t>(from) * 40503u + static_cast<uint32_t>(i);
}

// One CTA. A half is written again two epochs later, when the reader's next letter has shown that it was read.
inline __global__ void talk_kernel(Talk talk, const __grid_constant__ WaitLimits limits, uint32_t* wrong) {
  const int32_t other = 1 - talk.rank;
  uint64_t* const mail_out =
      reinterpret_cast<uint64_t*>(talk.theirs + talk.layout.word_offset(talk.layout.flags.begun(Rank{talk.rank})));
  const uint32_t mail_in_word = talk.layout.flags.begun(Rank{other});
  const uint64_t* const mail_in = reinterpret_cast<uint64_t*>(talk.mine + talk.layout.word_offset(mail_in_word));
  const Epoch end = talk.first + static_cast<Epoch>(talk.rounds);
  for (Epoch epoch = talk.first; epoch < end; ++epoch) {
    const int64_t at = talk.layout.half_offset(epoch) + talk.offset;
    auto* const out = reinterpret_cast<uint32_t*>(talk.theirs + at);
    for (int64_t i = threadIdx.x; i < talk.words; i += blockDim.x) out[i] = letter_word(talk.rank, epoch, i);
    __syncthreads();
    bool is_here = true;
    if (threadIdx.x == 0) {
      Waiter waiter(limits, 0, epoch);
      publish(mail_out, epoch);
      is_here = consume(waiter, mail_in, mail_in_word, epoch);
    }
    if (__syncthreads_and(is_here ? 1 : 0) == 0) return;
    const auto* const in = reinterpret_cast<const uint32_t*>(talk.mine + at);
    uint32_t wrong_here = 0;
    for (int64_t i = threadIdx.x; i < talk.words; i += blockDim.x) wrong_here += in[i] != letter_word(other, epoch, i);
    if (wrong_here != 0) atomicAdd(wrong, wrong_here);
    __syncthreads();
  }
}

// One rank of two with its arena and what a kernel of it needs.
class TalkingRank {
 public:
  TalkingRank(int32_t rank, CudaArena& arena, const std::shared_ptr<const CudaDevice>& device)
      : rank_(rank),
        arena_(arena),
        fault_(PinnedMemory::make(device, sizeof(FaultRecord), "test", "fault record")),
        wrong_(1) {
    wrong_.fill_bytes(0);
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
    check_cuda(cudaDeviceSynchronize(), "preparing a rank");  // the stream does not wait for the fill
    start(1, 0, 0, 0);                                        // loads the kernel: none may be loaded while one waits
    finish();
  }
  ~TalkingRank() { cudaStreamDestroy(stream_); }
  TalkingRank(const TalkingRank&) = delete;
  TalkingRank& operator=(const TalkingRank&) = delete;

  void start(Epoch first, int64_t rounds, int64_t offset, int64_t words) {
    const Talk talk{.mine = arena_.base(),
                    .theirs = arena_.peer(Rank{1 - rank_}),
                    .layout = arena_.layout(),
                    .rank = rank_,
                    .first = first,
                    .rounds = rounds,
                    .offset = offset,
                    .words = words};
    WaitLimits limits;
    limits.abort_word = reinterpret_cast<uint64_t*>(arena_.base() + ControlPage::kAbort);
    limits.fault = reinterpret_cast<FaultRecord*>(fault_.on_gpu());
    limits.timeout_ns = 8'000'000'000;
    limits.rank = rank_;
    talk_kernel<<<1, 256, 0, stream_>>>(talk, limits, wrong_.data());
    check_cuda(cudaGetLastError(), "starting the talk");
  }
  void finish() { check_cuda(cudaStreamSynchronize(stream_), "talking"); }
  // Words that were not what the other one had written, since the beginning.
  uint32_t wrong_words() const { return wrong_.to_host()[0]; }
  bool has_fault() const { return reinterpret_cast<const FaultRecord*>(fault_.host())->state != FaultRecord::kNone; }

 private:
  int32_t rank_;
  CudaArena& arena_;
  PinnedMemory fault_;
  DeviceBuffer<uint32_t> wrong_;
  cudaStream_t stream_ = nullptr;
};

inline ArenaConfig talk_config(int32_t rank) {
  constexpr int64_t kPage = int64_t{2} << 20;
  return {.rank = Rank{rank},
          .layout = {.flags = {.ranks = 2, .max_chunks = 64},
                     .half_stride_bytes = int64_t{64} << 30,
                     .user_stride_bytes = int64_t{64} << 30},
          .half_bytes = 2 * kPage,
          .user_bytes = kPage};
}

}  // namespace tilewire
