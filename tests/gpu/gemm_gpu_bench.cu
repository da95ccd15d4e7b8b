// The compute role alone against cuBLAS: gemm_gpu_bench [FILE.json COMMIT DATE] [--forms | --gated]. Random data, three
// operand sets in rotation, blocks of launches of the two alternating, medians over rounds. --forms measures every form
// by itself; --gated measures the kernel with a wait for a flag a tile (set beforehand), deadline and abort look in
// place, against the plain one.
#include "gated_gemm.cuh"
#include "gemm_check.cuh"

#include <cublas_v2.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

namespace tilewire {
namespace {

constexpr int kSets = 3;
constexpr int kRounds = 9;
constexpr double kBlockUs = 5000;

struct Size {
  int64_t rows, cols, depth;
};
constexpr Size kSizes[] = {{8192, 8192, 8192}, {4096, 4096, 4096},  {16384, 8192, 4096}, {8192, 3584, 8192},
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

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + v.size() / 2, v.end());
  return v[v.size() / 2];
}

struct Row {
  Size size;
  std::string form;
  double ours_us, baseline_us, ratio, low, high;
};

// The ratio is the median over rounds of (cuBLAS / ours) in that round.
Row measure(const Size& size, const FormNumbers* form, Cublas& cublas, Stopwatch& watch) {
  std::vector<std::unique_ptr<GemmCase<__nv_bfloat16>>> sets;
  std::vector<Gemm> ours;
  for (int i = 0; i < kSets; ++i) {
    sets.push_back(std::make_unique<GemmCase<__nv_bfloat16>>(size.rows, size.cols, size.depth, false, 0));
    sets.back()->fill(Content::random, static_cast<uint32_t>(i));
    ours.emplace_back(sets.back()->problem(), form);
  }
  const auto run_ours = [&](int i) { ours[i % kSets].launch(nullptr); };
  const auto run_cublas = [&](int i) { cublas.multiply(sets[i % kSets]->problem()); };
  const double guess_us = (watch.measure(3, run_cublas), watch.measure(5, run_cublas));
  const int count = std::clamp(static_cast<int>(kBlockUs / guess_us), 20, 100);
  std::vector<double> ours_us, cublas_us, ratios;
  for (int round = -1; round < kRounds; ++round) {  // the first warms up
    const double theirs = watch.measure(count, run_cublas), mine = watch.measure(count, run_ours);
    if (round < 0) continue;
    ours_us.push_back(mine);
    cublas_us.push_back(theirs);
    ratios.push_back(theirs / mine);
  }
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  return {size, ours[0].form().name, median(ours_us), median(cublas_us), median(ratios), *low, *high};
}

// The plain kernel is the baseline here.
Row measure_gated(const Size& size, Stopwatch& watch) {
  std::vector<std::unique_ptr<GemmCase<__nv_bfloat16>>> sets;
  std::vector<Gemm> gemms;
  for (int i = 0; i < kSets; ++i) {
    sets.push_back(std::make_unique<GemmCase<__nv_bfloat16>>(size.rows, size.cols, size.depth, false, 0));
    sets.back()->fill(Content::random, static_cast<uint32_t>(i));
    gemms.emplace_back(sets.back()->problem());
  }
  DeviceBuffer<uint64_t> flags(1024), abort_word(1);
  flags.fill_bytes(1);
  abort_word.fill_bytes(0);
  FaultRecord* fault = nullptr;
  check_cuda(cudaMallocHost(&fault, sizeof(FaultRecord)), "allocating pinned memory");
  *fault = FaultRecord{};
  const WaitLimits limits{abort_word.data(), fault, 1'000'000'000, 1, 0, 0};
  const auto run_gated = [&](int i) { launch_gated(gemms[i % kSets], limits, flags.data(), nullptr); };
  const auto run_plain = [&](int i) { gemms[i % kSets].launch(nullptr); };
  const double guess_us = (watch.measure(3, run_plain), watch.measure(5, run_plain));
  const int count = std::clamp(static_cast<int>(kBlockUs / guess_us), 20, 100);
  std::vector<double> gated_us, plain_us, ratios;
  for (int round = -1; round < kRounds; ++round) {
    const double plain = watch.measure(count, run_plain), gated = watch.measure(count, run_gated);
    if (round < 0) continue;
    gated_us.push_back(gated);
    plain_us.push_back(plain);
    ratios.push_back(plain / gated);
  }
  if (fault->state != FaultRecord::kNone) throw std::runtime_error("a wait expired in the bench");
  cudaFreeHost(fault);
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  return {size, gemms[0].form().name, median(gated_us), median(plain_us), median(ratios), *low, *high};
}

void print(const Row& r) {
  const double flop =
      2.0 * static_cast<double>(r.size.rows) * static_cast<double>(r.size.cols) * static_cast<double>(r.size.depth);
  std::printf("%6lld x %6lld x %6lld  %-20s %9.1f us %6.1f TFLOP/s   baseline %9.1f us   ratio %.3f (%.3f to %.3f)\n",
              static_cast<long long>(r.size.rows), static_cast<long long>(r.size.cols),
              static_cast<long long>(r.size.depth), r.form.c_str(), r.ours_us, flop / r.ours_us / 1e6, r.baseline_us,
              r.ratio, r.low, r.high);
  std::fflush(stdout);
}

void write_json(const std::string& path, const char* commit, const char* date, const std::vector<Row>& rows,
                bool is_gated) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, 0), "asking for the GPU's name");
  std::ofstream out(path);
  out << "{\n  \"commit\": \"" << commit << "\",\n  \"date\": \"" << date << "\",\n  \"machine\": \"1x "
      << properties.name << "\",\n  \"rows\": [\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& r = rows[i];
    char line[512];
    std::snprintf(line, sizeof(line),
                  "    {\"bench\": \"%s\", \"op\": \"ag_gemm\", \"shape\": \"%lldx%lldx%lld\", \"form\": \"%s\", "
                  "\"ours\": %.2f, \"baseline\": %.2f, \"baseline_name\": \"%s\", \"unit\": \"us\", "
                  "\"ratio\": %.4f, \"ratio_low\": %.4f, \"ratio_high\": %.4f}",
                  is_gated ? "compute_role_gated" : "compute_role", static_cast<long long>(r.size.rows),
                  static_cast<long long>(r.size.cols), static_cast<long long>(r.size.depth), r.form.c_str(), r.ours_us,
                  r.baseline_us, is_gated ? "plain kernel" : "cublasGemmEx", r.ratio, r.low, r.high);
    out << line << (i + 1 < rows.size() ? ",\n" : "\n");
  }
  out << "  ]\n}\n";
}

int run(int count, char** words) {
  const std::string option = count > 1 ? words[count - 1] : "";
  const bool all_forms = option == "--forms", is_gated = option == "--gated";
  Cublas cublas;
  Stopwatch watch;
  std::vector<Row> rows;
  double log_sum = 0, worst = 1e9;
  for (const Size& size : kSizes) {
    if (all_forms) {
      for (const FormNumbers& form : gemm_forms()) print(measure(size, &form, cublas, watch));
      continue;
    }
    rows.push_back(is_gated ? measure_gated(size, watch) : measure(size, nullptr, cublas, watch));
    print(rows.back());
    log_sum += std::log(rows.back().ratio);
    worst = std::min(worst, rows.back().ratio);
  }
  if (all_forms) return 0;
  std::printf("geometric mean %.4f, worst %.4f\n", std::exp(log_sum / static_cast<double>(rows.size())), worst);
  if (count >= 4) write_json(words[1], words[2], words[3], rows, is_gated);
  return 0;
}

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  if (!tilewire::has_gpu()) return 77;
  try {
    return tilewire::run(count, words);
  } catch (const std::exception& e) {
    std::printf("FAILED: %s\n", e.what());
    return 1;
  }
}
