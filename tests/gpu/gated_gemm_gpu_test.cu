// The GEMM behind flags: rows of A that arrive while it runs, and rows that never come.
#include "gated_gemm.cuh"
#include "gemm_check.cuh"
#include "gpu_program.cuh"

#include <cstdio>

namespace tilewire {
namespace {

constexpr Epoch kEpoch = (Epoch{1} << 32) + 2;
constexpr int kMessengers = 8;

using Bf16 = __nv_bfloat16;
using Case = GemmCase<Bf16>;

// CTA i brings the row blocks i, i + gridDim, ... with a delay before each, and publishes the flag of each.
__global__ void bring_rows(const Bf16* from, Bf16* to, int64_t rows, int64_t pitch, int32_t block_rows,
                           uint64_t* flags) {
  const int32_t blocks = static_cast<int32_t>((rows + block_rows - 1) / block_rows);
  for (int32_t block = static_cast<int32_t>(blockIdx.x); block < blocks; block += static_cast<int32_t>(gridDim.x)) {
    if (threadIdx.x == 0) __nanosleep(mix(static_cast<uint32_t>(block)) % 50000);
    __syncthreads();
    const int64_t begin = int64_t{block} * block_rows * pitch;
    const int64_t end = min(begin + block_rows * pitch, rows * pitch);
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) to[i] = from[i];
    __syncthreads();
    if (threadIdx.x == 0) publish(flags + block, kEpoch);
  }
}

class Watch {
 public:
  Watch() {
    check_cuda(cudaMallocHost(&fault_, sizeof(FaultRecord)), "allocating pinned memory");
    *fault_ = FaultRecord{};
    abort_word_.fill_bytes(0);
  }
  ~Watch() { cudaFreeHost(fault_); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  WaitLimits limits(uint64_t timeout_ns) const { return {abort_word_.data(), fault_, timeout_ns, 1, 2}; }
  const FaultRecord& fault() const { return *fault_; }

 private:
  FaultRecord* fault_ = nullptr;
  DeviceBuffer<uint64_t> abort_word_{1};
};

bool is_right(const GemmFindings& found) {
  const uint32_t bits = static_cast<uint32_t>(found.worst >> 32);
  float error;
  memcpy(&error, &bits, sizeof(error));
  return error <= 1 && found.written_outside == 0;
}

void test_rows_that_arrive(const FormNumbers& form) {
  Case data(2000, 1544, 520, false, 0);
  data.fill(MatrixContent::random, 11);
  const Gemm gemm(data.problem(), &form);
  DeviceBuffer<Bf16> source(data.a.count());
  DeviceBuffer<uint64_t> flags(64);
  cudaStream_t streams[2];
  for (auto& stream : streams) check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  check_cuda(
      cudaMemcpy(source.data(), data.a.data(), static_cast<size_t>(data.a.count()) * 2, cudaMemcpyDeviceToDevice),
      "copying A");
  for (int run = 0; run < 5; ++run) {
    const Watch watch;
    data.poison();
    data.a.fill_bytes(0xff);
    flags.fill_bytes(0);
    check_cuda(cudaDeviceSynchronize(), "preparing");
    bring_rows<<<kMessengers, 256, 0, streams[0]>>>(source.data(), data.a.data(), 2000, data.size.a_pitch,
                                                    form.work_rows(), flags.data());
    launch_gated(gemm, watch.limits(2'000'000'000), flags.data(), kEpoch, streams[1]);
    check_cuda(cudaDeviceSynchronize(), "running the gated GEMM");
    expect(is_right(data.check(MatrixContent::random)),
           std::string(form.name) + ": rows that arrive late are multiplied as they arrive");
    expect(watch.fault().state == FaultRecord::kNone, std::string(form.name) + ": no wait expires when all rows come");
  }
  for (auto& stream : streams) cudaStreamDestroy(stream);
}

// Row block 2 never comes.
void test_rows_that_never_come(const FormNumbers& form) {
  constexpr uint64_t kMissing = 2;
  Case data(2000, 1544, 520, false, 0);
  data.fill(MatrixContent::random, 12);
  const Gemm gemm(data.problem(), &form);
  DeviceBuffer<uint64_t> flags(64);
  std::vector<uint64_t> words(64, kEpoch);
  words[kMissing] = kEpoch - 1;
  check_cuda(cudaMemcpy(flags.data(), words.data(), words.size() * 8, cudaMemcpyHostToDevice), "setting flags");
  gemm.launch(nullptr);
  const std::vector<Bf16> right = data.d.to_host();
  const Watch watch;
  data.d.fill_bytes(0x11);
  launch_gated(gemm, watch.limits(3'000'000), flags.data(), kEpoch, nullptr);
  const std::vector<Bf16> got = data.d.to_host();
  const auto bits = [](const std::vector<Bf16>& v, int64_t i) {
    uint16_t word;
    memcpy(&word, &v[static_cast<size_t>(i)], sizeof(word));
    return word;
  };
  int64_t not_nan = 0, neither = 0;
  for (int64_t row = 0; row < data.size.rows; ++row) {
    const bool is_missing = static_cast<uint64_t>(row / form.work_rows()) == kMissing;
    for (int64_t col = 0; col < data.size.cols; ++col) {
      const int64_t i = row * data.size.d_pitch + col;
      if (is_missing) {
        not_nan += bits(got, i) != 0xffff;
      } else {
        neither += bits(got, i) != 0xffff && bits(got, i) != bits(right, i);
      }
    }
  }
  expect(not_nan == 0, std::string(form.name) + ": output whose rows never came is NaN");
  expect(neither == 0, std::string(form.name) + ": all other output is right, or NaN where its CTA had given up");
  expect(watch.fault().state == FaultRecord::kComplete && watch.fault().word == kMissing &&
             watch.fault().role == kGatedRole && watch.fault().seen == kEpoch - 1,
         std::string(form.name) + ": the record names the flag that never came");
}

int run() {
  for (const FormNumbers& form : gemm_forms()) {
    test_rows_that_arrive(form);
    test_rows_that_never_come(form);
  }
  return verdict_of_claims();
}

}  // namespace
}  // namespace tilewire

int main() { return tilewire::run_gpu_program(tilewire::run); }
