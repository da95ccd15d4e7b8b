// What it costs the host to launch a fused call: launch_gpu_bench [FILE.json COMMIT DATE]. Microseconds a launch into a
// stream that is not waited for, against a launch of an empty kernel; and what it is made of.
#include "bench_rows.cuh"
#include "gpu_program.cuh"
#include "virtual_cluster.cuh"

#include "device/tile/tile_launch.cuh"
#include "ops/ag_gemm/device_launch.cuh"
#include "ops/ag_gemm/device_parameters.cuh"

#include <chrono>
#include <cstdio>
#include <functional>

namespace tilewire {
namespace {

constexpr Turns kTurns{.rounds = 9, .block_us = 1000, .least = 200, .most = 200};
constexpr int64_t kRows = 128, kDepth = 64, kCols = 128;

__global__ void do_nothing() {}
struct ManyBytes {
  std::byte bytes[sizeof(ag_gemm::FusedParameters)];
};
__global__ void __launch_bounds__(kGemmThreads, 1) take_parameters(const __grid_constant__ ManyBytes) {}

class Bench {
 public:
  Bench()
      : cluster_({.widths = {1}, .half_bytes = kRows * kDepth * 2}),
        a_(kRows * kDepth),
        b_(kCols * kDepth),
        d_(kRows * kCols),
        kernel_(make_kernel()) {
    check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
    check_cuda(cudaDeviceSynchronize(), "preparing");
  }
  ~Bench() { cudaEventDestroy(event_); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  BenchRow compare(const char* name, const std::function<void()>& step) {
    const Comparison found = compare_in_turns(
        kTurns, [&](int n) { return time_us(n, [&] { do_nothing<<<132, 128, 0, stream()>>>(); }); },
        [&](int n) { return time_us(n, step); });
    std::printf("%-44s %7.2f us   an empty kernel %7.2f us\n", name, found.ours_us, found.baseline_us);
    return {name, "host", found};
  }

  void launch() const { kernel_.launch(1, operands(), stream()); }
  void make_parameters() const { made_ = kernel_.parameters(1, operands()).stages_per_tile; }
  void launch_made() {
    static ag_gemm::FusedParameters parameters = kernel_.parameters(1, operands());
    kernel_.launch(parameters, stream());
  }
  void launch_many_bytes() const {
    static ManyBytes bytes{};
    launch_tile_kernel(reinterpret_cast<const void*>(&take_parameters), kernel_.form(), kernel_.ctas(), &bytes,
                       stream());
  }
  void record() const { check_cuda(cudaEventRecord(event_, stream()), "recording"); }
  void query() const { static_cast<void>(cudaEventQuery(event_)); }
  void ask_capture() const {
    cudaStreamCaptureStatus status;
    check_cuda(cudaStreamIsCapturing(stream(), &status), "asking");
  }
  void prepare_many_bytes() const {
    prepare_tile_kernel(reinterpret_cast<const void*>(&take_parameters), kernel_.form());
  }

 private:
  cudaStream_t stream() const { return cluster_.stream(0); }
  ag_gemm::FusedOperands operands() const {
    return {.a = a_view_, .b = {&b_view_, 1}, .out = {&d_view_, 1}, .bias = {}};
  }
  ag_gemm::FusedKernel make_kernel() {
    a_view_ = {a_.data(), kRows, kDepth, kDepth * 2, DataType::bf16};
    b_view_ = {b_.data(), kCols, kDepth, kDepth * 2, DataType::bf16};
    d_view_ = {d_.data(), kRows, kCols, kCols * 2, DataType::bf16};
    const ag_gemm::Problem problem{.rows = {kRows}, .k = kDepth, .dtype = DataType::bf16, .cols = {kCols}};
    PlanContext context = cluster_.context(0);
    context.workers = sm_count();
    const ag_gemm::FusedPlan plan = make_plan<ag_gemm::FusedPlan>(problem, context).choice;
    return {problem, plan, context, cluster_.rank(0, 1'000'000'000), false};
  }
  double time_us(int count, const std::function<void()>& step) {
    check_cuda(cudaDeviceSynchronize(), "emptying the stream");
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) step();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / count;
  }

  VirtualCluster cluster_;
  DeviceBuffer<uint16_t> a_, b_, d_;
  DeviceMatrix a_view_, b_view_, d_view_;
  ag_gemm::FusedKernel kernel_;
  cudaEvent_t event_ = nullptr;
  mutable volatile int32_t made_ = 0;
};

int run(int count, char** words) {
  Bench bench;
  bench.prepare_many_bytes();
  std::vector<BenchRow> rows;
  rows.push_back(bench.compare("a fused call, enqueued", [&] { bench.launch(); }));
  rows.push_back(bench.compare("  its parameters alone", [&] { bench.make_parameters(); }));
  rows.push_back(bench.compare("  its launch alone", [&] { bench.launch_made(); }));
  rows.push_back(bench.compare("  an empty kernel launched like it", [&] { bench.launch_many_bytes(); }));
  rows.push_back(bench.compare("  cudaEventRecord", [&] { bench.record(); }));
  rows.push_back(bench.compare("  cudaEventQuery", [&] { bench.query(); }));
  rows.push_back(bench.compare("  cudaStreamIsCapturing", [&] { bench.ask_capture(); }));
  check_cuda(cudaDeviceSynchronize(), "ending");
  if (count >= 4) write_json(words[1], words[2], words[3], BenchFile{"launch", "an empty kernel"}, rows);
  return 0;
}

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  tilewire::prepare_for_waiting_kernels();
  return tilewire::run_gpu_program([&] { return tilewire::run(count, words); });
}
