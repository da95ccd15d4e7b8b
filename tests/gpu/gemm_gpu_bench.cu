// The compute role alone against cuBLAS: gemm_gpu_bench [--forms | --gated] [FILE.json COMMIT DATE]. Random data, three
// operand sets in rotation, blocks of launches of the two alternating, medians over rounds. --forms measures every form
// by itself; --gated measures the kernel with a wait for a flag a tile (set beforehand), deadline and abort look in
// place, against the plain one.
#include "bench_rows.cuh"
#include "gated_gemm.cuh"
#include "gemm_check.cuh"
#include "gpu_program.cuh"

#include <cublas_v2.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>

namespace tilewire {
namespace {

constexpr int kSets = 3;
constexpr Turns kTurns{.rounds = 9, .block_us = 5000, .least = 20, .most = 100};
constexpr BenchSize kSizes[] = {{8192, 8192, 8192}, {4096, 4096, 4096},  {16384, 8192, 4096}, {8192, 3584, 8192},
                                {8192, 8192, 3584}, {8192, 28672, 1024}, {8192, 2048, 8192},  {4096, 14336, 4096},
                                {2048, 8192, 8192}, {1024, 8192, 8192},  {8192, 4096, 512},   {128, 8192, 8192}};

class Cublas {
 public:
  Cublas() {
    if (cublasCreate(&handle_) != CUBLAS_STATUS_SUCCESS) throw std::runtime_error("cuBLAS does not start");
  }
  ~Cublas() { cublasDestroy(handle_); }
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  // Column-major words for: d[M, N] = a[M, K] * b[N, K]^T, all row-major.
  void multiply(const GemmProblem& p) {
    const float one = 1, zero = 0;
    const auto pitch = [](const DeviceMatrix& m) { return static_cast<int>(m.pitch_bytes / kElementBytes); };
    const cublasStatus_t status =
        cublasGemmEx(handle_, p.is_b_n_major ? CUBLAS_OP_N : CUBLAS_OP_T, CUBLAS_OP_N, static_cast<int>(p.d.cols),
                     static_cast<int>(p.d.rows), static_cast<int>(p.a.cols), &one, p.b.data, CUDA_R_16BF, pitch(p.b),
                     p.a.data, CUDA_R_16BF, pitch(p.a), &zero, const_cast<void*>(p.d.data), CUDA_R_16BF, pitch(p.d),
                     CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    if (status != CUBLAS_STATUS_SUCCESS) throw std::runtime_error("cuBLAS failed");
  }

 private:
  cublasHandle_t handle_ = nullptr;
};

class Stopwatch {
 public:
  Stopwatch() {
    cudaEventCreate(&begin_);
    cudaEventCreate(&end_);
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  // Microseconds a launch.
  double measure(int count, const std::function<void(int)>& launch) {
    cudaEventRecord(begin_);
    for (int i = 0; i < count; ++i) launch(i);
    cudaEventRecord(end_);
    check_cuda(cudaEventSynchronize(end_), "measuring");
    float ms = 0;
    cudaEventElapsedTime(&ms, begin_, end_);
    return 1000.0 * ms / count;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

using Sets = std::vector<std::unique_ptr<GemmCase<__nv_bfloat16>>>;

Sets random_sets(const BenchSize& size) {
  Sets sets;
  for (int i = 0; i < kSets; ++i) {
    sets.push_back(std::make_unique<GemmCase<__nv_bfloat16>>(size.rows, size.cols, size.depth, false, 0));
    sets.back()->fill(MatrixContent::random, static_cast<uint32_t>(i));
  }
  return sets;
}

// `form`: nullptr for the one that the library chooses.
BenchRow measure(const BenchSize& size, const FormNumbers* form, Cublas& cublas, Stopwatch& watch) {
  const Sets sets = random_sets(size);
  std::vector<Gemm> ours;
  for (const auto& set : sets) ours.emplace_back(set->problem(), form);
  const auto run_ours = [&](int i) { ours[i % kSets].launch(nullptr); };
  const auto run_cublas = [&](int i) { cublas.multiply(sets[i % kSets]->problem()); };
  const Comparison found = compare_in_turns(
      kTurns, [&](int count) { return watch.measure(count, run_cublas); },
      [&](int count) { return watch.measure(count, run_ours); });
  return {size.text(), ours[0].form().name, found};
}

// The plain kernel is the baseline here.
BenchRow measure_gated(const BenchSize& size, Stopwatch& watch) {
  const Sets sets = random_sets(size);
  std::vector<Gemm> gemms;
  for (const auto& set : sets) gemms.emplace_back(set->problem());
  DeviceBuffer<uint64_t> flags(1024), abort_word(1);
  flags.fill_bytes(1);
  abort_word.fill_bytes(0);
  FaultRecord* fault = nullptr;
  check_cuda(cudaMallocHost(&fault, sizeof(FaultRecord)), "allocating pinned memory");
  *fault = FaultRecord{};
  const WaitLimits limits{abort_word.data(), fault, 1'000'000'000, 0, 0};
  const auto run_gated = [&](int i) { launch_gated(gemms[i % kSets], limits, flags.data(), 1, nullptr); };
  const auto run_plain = [&](int i) { gemms[i % kSets].launch(nullptr); };
  const Comparison found = compare_in_turns(
      kTurns, [&](int count) { return watch.measure(count, run_plain); },
      [&](int count) { return watch.measure(count, run_gated); });
  if (fault->state != FaultRecord::kNone) throw std::runtime_error("a wait expired in the bench");
  cudaFreeHost(fault);
  return {size.text(), gemms[0].form().name, found};
}

void print(const BenchSize& size, const BenchRow& r) {
  const double flop =
      2.0 * static_cast<double>(size.rows) * static_cast<double>(size.cols) * static_cast<double>(size.depth);
  std::printf("%-20s %-20s %9.1f us %6.1f TFLOP/s   baseline %9.1f us   ratio %.3f (%.3f to %.3f)\n", r.shape.c_str(),
              r.form.c_str(), r.found.ours_us, flop / r.found.ours_us / 1e6, r.found.baseline_us, r.found.ratio,
              r.found.low, r.found.high);
  std::fflush(stdout);
}

int run(int count, char** words) {
  const std::string option = count > 1 ? words[1] : "";
  const bool all_forms = option == "--forms", is_gated = option == "--gated";
  if (all_forms || is_gated) {
    ++words;
    --count;
  }
  Cublas cublas;
  Stopwatch watch;
  std::vector<BenchRow> rows;
  double log_sum = 0, worst = 1e9;
  for (const BenchSize& size : kSizes) {
    if (all_forms) {
      for (const FormNumbers& form : gemm_forms()) print(size, measure(size, &form, cublas, watch));
      continue;
    }
    rows.push_back(is_gated ? measure_gated(size, watch) : measure(size, nullptr, cublas, watch));
    print(size, rows.back());
    log_sum += std::log(rows.back().found.ratio);
    worst = std::min(worst, rows.back().found.ratio);
  }
  if (all_forms) return 0;
  std::printf("geometric mean %.4f, worst %.4f\n", std::exp(log_sum / static_cast<double>(rows.size())), worst);
  const BenchFile file =
      is_gated ? BenchFile{"compute_role_gated", "plain kernel"} : BenchFile{"compute_role", "cublasGemmEx"};
  if (count >= 4) write_json(words[1], words[2], words[3], file, rows);
  return 0;
}

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  return tilewire::run_gpu_program([&] { return tilewire::run(count, words); });
}
