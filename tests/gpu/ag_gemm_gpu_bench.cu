// The fused AllGather+GEMM on one GPU: ag_gemm_gpu_bench [FILE.json COMMIT DATE]. Random data, medians over rounds in
// which baseline and fused kernel alternate.
//
// One rank against cuBLAS: what the machinery of a call costs (own copy, flags, begin and end), with SMs that only
// push. Virtual nodes of 2 and 4 ranks on SMs / ranks each, all at once, against cuBLAS on as many SMs a rank that
// finds its data gathered. That shows the cost of the roles beside each other and of waiting; it shows nothing of links
// between GPUs, and all ranks share one memory, one cache and one power limit.
#include "gemm_check.cuh"
#include "virtual_node.cuh"

#include "device/tile/tile_launch.cuh"
#include "ops/ag_gemm/device_parameters.cuh"

#include <cublas_v2.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>

namespace tilewire {
namespace {

constexpr int kSkipped = 77;
constexpr int kRounds = 7;
constexpr double kBlockUs = 6000;
constexpr uint64_t kTimeoutNs = 2'000'000'000;
using Bf16 = __nv_bfloat16;

struct Size {
  int64_t rows, cols, depth;  // of all ranks together; cols of each
};
constexpr Size kSizes[] = {{8192, 8192, 8192}, {8192, 3584, 8192},  {8192, 4096, 4096}, {2048, 8192, 8192},
                           {4096, 4096, 4096}, {8192, 28672, 1024}, {8192, 4096, 512}};
constexpr Size kNodeSizes[] = {{8192, 8192, 8192}, {8192, 4096, 4096}, {2048, 4096, 8192}, {8192, 4096, 1024}};

struct Row {
  std::string shape, form;
  double ours_us, baseline_us, ratio, low, high;
};

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<int64_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

// All ranks of a node with the same shape, and cuBLAS for each.
class Bench {
 public:
  Bench(const Size& size, int32_t ranks, int32_t push_ctas, int32_t raster_rows)
      : size_(size), node_(ranks, 256, size.rows * size.depth * 2, 1), whole_(size.rows * size.depth) {
    const std::vector<int64_t> rows(static_cast<size_t>(ranks), size.rows / ranks);
    const ag_gemm::Problem problem{.rows = rows, .k = size.depth, .dtype = DataType::bf16, .cols = {size.cols}};
    const int32_t sms = sm_count() / ranks / 2 * 2;
    ag_gemm::FusedPlan plan = ag_gemm::fused_plan(problem, ranks, sms, push_ctas);
    plan.choice.chunk_rows = 128;
    plan.choice.raster_rows = raster_rows;
    fill(whole_, size.rows, 9);
    for (int32_t r = 0; r < ranks; ++r) {
      kernels_.emplace_back(problem, plan, node_.context(r), node_.rank(r, kTimeoutNs), false);
      a_.emplace_back(rows[0] * size.depth);
      b_.emplace_back(size.cols * size.depth);
      d_.emplace_back(size.rows * size.cols);
      fill(a_.back(), rows[0], static_cast<uint32_t>(r));
      fill(b_.back(), size.cols, static_cast<uint32_t>(100 + r));
      if (cublasCreate(&handles_.emplace_back()) != CUBLAS_STATUS_SUCCESS) throw std::runtime_error("no cuBLAS");
      cublasSetStream(handles_.back(), node_.stream(r));
      if (ranks > 1) cublasSetSmCountTarget(handles_.back(), sms);
    }
    check_cuda(cudaDeviceSynchronize(), "preparing");
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() {
    for (cublasHandle_t handle : handles_) cublasDestroy(handle);
  }

  Row measure() {
    const auto fused = [&] { launch_fused(); };
    const auto cublas = [&] { launch_cublas(); };
    const double guess_us = (time_us(2, cublas), time_us(3, cublas));
    const int count = std::clamp(static_cast<int>(kBlockUs / guess_us), 5, 60);
    std::vector<double> ours, theirs, ratios;
    for (int round = -1; round < kRounds; ++round) {
      const double baseline = time_us(count, cublas), mine = time_us(count, fused);
      if (round < 0) continue;
      ours.push_back(mine);
      theirs.push_back(baseline);
      ratios.push_back(baseline / mine);
    }
    for (int32_t r = 0; r < node_.ranks(); ++r) {
      if (node_.fault(r).state != FaultRecord::kNone) throw std::runtime_error("a wait expired in the bench");
    }
    const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
    return {std::to_string(size_.rows) + "x" + std::to_string(size_.cols) + "x" + std::to_string(size_.depth),
            kernels_[0].form().name,
            median(ours),
            median(theirs),
            median(ratios),
            *low,
            *high};
  }

 private:
  void fill(const DeviceBuffer<Bf16>& to, int64_t rows, uint32_t seed) {
    fill_matrix<<<256, 256>>>(to.data(), rows, size_.depth, size_.depth, Content::random, seed);
  }
  void launch_fused() {
    ++epoch_;
    for (size_t r = 0; r < kernels_.size(); ++r) {
      const int64_t pitch = size_.depth * 2;
      const DeviceMatrix b{b_[r].data(), size_.cols, size_.depth, pitch, DataType::bf16};
      const DeviceMatrix d{d_[r].data(), size_.rows, size_.cols, size_.cols * 2, DataType::bf16};
      const DeviceMatrix a{a_[r].data(), size_.rows / node_.ranks(), size_.depth, pitch, DataType::bf16};
      kernels_[r].launch(epoch_, {1, epoch_}, {.a = a, .b = {&b, 1}, .out = {&d, 1}, .bias = {}},
                         node_.stream(static_cast<int32_t>(r)));
    }
  }
  void launch_cublas() {
    const float one = 1, zero = 0;
    for (size_t r = 0; r < kernels_.size(); ++r) {
      const auto n = static_cast<int>(size_.cols), m = static_cast<int>(size_.rows), k = static_cast<int>(size_.depth);
      if (cublasGemmEx(handles_[r], CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one, b_[r].data(), CUDA_R_16BF, k,
                       whole_.data(), CUDA_R_16BF, k, &zero, d_[r].data(), CUDA_R_16BF, n, CUBLAS_COMPUTE_32F,
                       CUBLAS_GEMM_DEFAULT) != CUBLAS_STATUS_SUCCESS) {
        throw std::runtime_error("cuBLAS failed");
      }
    }
  }
  // Microseconds a call of all ranks, `count` of them behind each other.
  double time_us(int count, const std::function<void()>& launch) {
    check_cuda(cudaDeviceSynchronize(), "measuring");
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) launch();
    check_cuda(cudaDeviceSynchronize(), "measuring");
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / count;
  }

  Size size_;
  VirtualNode node_;
  DeviceBuffer<Bf16> whole_;
  std::vector<ag_gemm::FusedKernel> kernels_;
  std::vector<DeviceBuffer<Bf16>> a_, b_, d_;
  std::vector<cublasHandle_t> handles_;
  Epoch epoch_ = 0;
};

void print(const Row& r) {
  std::printf("%-44s %-20s %9.1f us   cuBLAS %9.1f us   ratio %.3f (%.3f to %.3f)\n", r.shape.c_str(), r.form.c_str(),
              r.ours_us, r.baseline_us, r.ratio, r.low, r.high);
  std::fflush(stdout);
}

void write_json(const std::string& path, const char* commit, const char* date, const std::vector<Row>& rows) {
  std::ofstream out(path);
  out << "{\n  \"commit\": \"" << commit << "\",\n  \"date\": \"" << date
      << "\",\n  \"machine\": \"1x NVIDIA H200\",\n  \"rows\": [\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& r = rows[i];
    char line[512];
    std::snprintf(line, sizeof(line),
                  "    {\"bench\": \"fused_virtual_node\", \"op\": \"ag_gemm\", \"shape\": \"%s\", \"form\": \"%s\", "
                  "\"ours\": %.2f, "
                  "\"baseline\": %.2f, \"baseline_name\": \"cublasGemmEx\", \"unit\": \"us\", \"ratio\": %.4f, "
                  "\"ratio_low\": %.4f, \"ratio_high\": %.4f}",
                  r.shape.c_str(), r.form.c_str(), r.ours_us, r.baseline_us, r.ratio, r.low, r.high);
    out << line << (i + 1 < rows.size() ? ",\n" : "\n");
  }
  out << "  ]\n}\n";
}

int run(int count, char** words) {
  std::vector<Row> rows;
  struct Split {
    int32_t push_ctas, raster_rows;
  };
  const auto add = [&](const Size& size, int32_t ranks, Split split) {
    rows.push_back(Bench(size, ranks, split.push_ctas, split.raster_rows).measure());
    rows.back().shape += ", ranks " + std::to_string(ranks) + ", push " + std::to_string(split.push_ctas) +
                         ", raster " + std::to_string(split.raster_rows);
    print(rows.back());
    if (count >= 4) write_json(words[1], words[2], words[3], rows);
  };
  for (const Size& size : kSizes) {
    for (const Split split : {Split{4, 2}, Split{4, 8}, Split{8, 4}}) add(size, 1, split);
  }
  for (const int32_t ranks : {2, 4}) {
    for (const Size& size : kNodeSizes) {
      for (const Split split : {Split{2, 1}, Split{4, 1}, Split{4, 4}}) add(size, ranks, split);
    }
  }
  return 0;
}

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  if (!tilewire::has_gpu()) return tilewire::kSkipped;
  try {
    return tilewire::run(count, words);
  } catch (const std::exception& e) {
    std::printf("FAILED: %s\n", e.what());
    return 1;
  }
}
