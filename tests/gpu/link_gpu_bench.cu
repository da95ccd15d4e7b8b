// What the link between two GPUs gives to the copying roles: link_gpu_bench [FILE.json COMMIT DATE]. The copy engine is
// the baseline: GB/s of a push by copy CTAs and by one warp of each SM, one way and both ways at once; and the round
// trip of a flag.
#include "bench_rows.cuh"
#include "device_buffer.cuh"
#include "gpu_program.cuh"

#include "device/comm/solo_copy.cuh"
#include "device/sync/wait.cuh"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace tilewire {
namespace {

constexpr int64_t kBytes = int64_t{256} << 20;
constexpr int kRounds = 7;

// Pieces `first`, `first + step`, ... of a buffer.
class Stripes {
 public:
  using Piece = CopyPiece;

  TILEWIRE_DEVICE Stripes(const std::byte* from, std::byte* to, int64_t piece_bytes, int64_t first, int64_t step)
      : from_(from), to_(to), piece_bytes_(piece_bytes), at_(first * piece_bytes), step_(step * piece_bytes) {}
  TILEWIRE_DEVICE bool next(CopyPiece& piece) {
    if (at_ >= kBytes) return false;
    const int64_t at = at_;
    at_ += step_;
    // A work is as long as a chunk would be.
    piece = {from_ + at, to_ + at, static_cast<uint32_t>(piece_bytes_), ++pieces_ % 8 == 0 || at_ >= kBytes};
    return true;
  }
  TILEWIRE_DEVICE void finish() const { ptx::bulk_wait<0>(); }

 private:
  const std::byte* from_;
  std::byte* to_;
  int64_t piece_bytes_, at_, step_;
  int32_t pieces_ = 0;
};

__global__ void push_by_ctas(const std::byte* from, std::byte* to) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const CopyRing ring(memory);
  if (threadIdx.x == 0) ring.init();
  __syncthreads();
  const Stripes stripes(from, to, CopyRing::kPieceBytes, blockIdx.x, gridDim.x);
  if (threadIdx.x == 0) ring.load(stripes);
  if (threadIdx.x == 32) ring.store(stripes);
}

__global__ void push_by_warps(const std::byte* from, std::byte* to, uint32_t pace_clocks) {
  __shared__ __align__(128) uint8_t memory[SoloCopy<2>::kSharedBytes];
  SoloCopy<2> copy(ptx::shared_address(memory), pace_clocks);
  copy.init();
  ptx::fence_mbarrier_init();
  copy.start_after(pace_clocks / gridDim.x * blockIdx.x);
  copy.run(Stripes(from, to, kCopyPieceBytes, blockIdx.x, gridDim.x));
}

__global__ void bounce(uint64_t* mine, uint64_t* theirs, uint64_t rounds, bool begins) {
  for (uint64_t i = 1; i <= rounds; ++i) {
    if (begins) publish(theirs, i);
    while (ptx::load_acquire_sys(mine) < i) {
    }
    if (!begins) publish(theirs, i);
  }
}

struct Gpu {
  int32_t number;
  DeviceBuffer<std::byte> from{kBytes}, to{kBytes};
  DeviceBuffer<uint64_t> flag{1};
  cudaStream_t stream = nullptr;

  explicit Gpu(int32_t n) : number(n) {
    flag.fill_bytes(0);
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    check_cuda(cudaFuncSetAttribute(push_by_ctas, cudaFuncAttributeMaxDynamicSharedMemorySize, CopyRing::kSharedBytes),
               "asking for shared memory");
  }
};

using Gpus = std::vector<std::unique_ptr<Gpu>>;

double time_us(const Gpus& gpus, const std::function<void()>& launch) {
  for (const auto& gpu : gpus) check_cuda(cudaStreamSynchronize(gpu->stream), "measuring");
  const auto begin = std::chrono::steady_clock::now();
  launch();
  for (const auto& gpu : gpus) check_cuda(cudaStreamSynchronize(gpu->stream), "measuring");
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

// `push(from, to)` on the stream of `from`, by the first GPU or by both at once.
using Push = std::function<void(const Gpu& from, const Gpu& to)>;
double rate_gbps(const Gpus& gpus, bool both, const Push& push) {
  std::vector<double> rates;
  for (int round = -1; round < kRounds; ++round) {
    const double us = time_us(gpus, [&] {
      for (int32_t i = 0; i < (both ? 2 : 1); ++i) {
        check_cuda(cudaSetDevice(gpus[static_cast<size_t>(i)]->number), "choosing a GPU");
        for (int repeat = 0; repeat < 4; ++repeat)
          push(*gpus[static_cast<size_t>(i)], *gpus[static_cast<size_t>(1 - i)]);
      }
    });
    if (round >= 0) rates.push_back(4.0 * kBytes / us / 1e3);
  }
  return median(rates);
}

int run(int count, char** words) {
  int devices = 0;
  check_cuda(cudaGetDeviceCount(&devices), "counting GPUs");
  if (devices < 2) return kSkipped;
  Gpus gpus;
  for (int32_t i = 0; i < 2; ++i) {
    check_cuda(cudaSetDevice(i), "choosing a GPU");
    check_cuda(cudaDeviceEnablePeerAccess(1 - i, 0), "reaching the other GPU");
    gpus.push_back(std::make_unique<Gpu>(i));
  }
  std::vector<BenchRow> rows;
  const auto add = [&](const std::string& name, bool both, double baseline, const Push& push) {
    const double rate = rate_gbps(gpus, both, push);
    rows.push_back({name + (both ? ", both ways" : ", one way"), "GB/s", {rate, baseline, rate / baseline, 0, 0}});
    std::printf("%-44s %7.1f GB/s   copy engine %7.1f   ratio %.3f\n", rows.back().shape.c_str(), rate, baseline,
                rate / baseline);
    std::fflush(stdout);
  };
  for (const bool both : {false, true}) {
    const double engine = rate_gbps(gpus, both, [](const Gpu& from, const Gpu& to) {
      check_cuda(cudaMemcpyAsync(to.to.data(), from.from.data(), kBytes, cudaMemcpyDefault, from.stream), "copying");
    });
    for (const int ctas : {1, 2, 4, 8, 12, 16, 32}) {
      add(std::to_string(ctas) + " copy CTAs", both, engine, [&](const Gpu& from, const Gpu& to) {
        push_by_ctas<<<ctas, 64, CopyRing::kSharedBytes, from.stream>>>(from.from.data(), to.to.data());
      });
    }
    for (const uint32_t pace : {0u, 2000u, 2500u, 2750u, 3000u}) {
      add("132 warps, pace " + std::to_string(pace), both, engine, [&](const Gpu& from, const Gpu& to) {
        push_by_warps<<<132, 1, 0, from.stream>>>(from.from.data(), to.to.data(), pace);
      });
    }
  }
  constexpr uint64_t kBounces = 20000;
  const double us = time_us(gpus, [&] {
    for (int32_t i = 0; i < 2; ++i) {
      check_cuda(cudaSetDevice(i), "choosing a GPU");
      const Gpu &own = *gpus[static_cast<size_t>(i)], &other = *gpus[static_cast<size_t>(1 - i)];
      bounce<<<1, 1, 0, own.stream>>>(own.flag.data(), other.flag.data(), kBounces, i == 0);
    }
  });
  std::printf("flag round trip %.2f us\n", us / kBounces);
  if (count >= 4) write_json(words[1], words[2], words[3], {"link", "cudaMemcpyAsync between GPUs"}, rows);
  return 0;
}

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  return tilewire::run_gpu_program([&] { return tilewire::run(count, words); });
}
