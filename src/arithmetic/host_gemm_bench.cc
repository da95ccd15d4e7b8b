// One tile on one core against a plain Eigen fp32 product of the same size, timed in turns in the same run, both in
// processor time of the thread so that a busy machine does no harm. Both include everything from inputs in memory to
// the output in memory.
#include "arithmetic/host_gemm.h"

#include <benchmark/benchmark.h>
#include <time.h>

#include <Eigen/Core>
#include <cstdint>
#include <vector>

#include "arithmetic/host_number.h"
#include "base/bench_row.h"

namespace tilewire {
namespace {

using FloatMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::vector<uint16_t> bf16_of(const FloatMatrix& values) {
  std::vector<uint16_t> out(static_cast<size_t>(values.size()));
  from_fp32(values.data(), values.size(), {out.data(), DataType::bf16});
  return out;
}

// Arguments: rows, cols, k, and whether b is given as [N, K].
void tile_against_eigen(benchmark::State& state) {
  BenchRow row(state, 1);
  const int64_t rows = state.range(0), cols = state.range(1), k = state.range(2);
  const bool is_nk = state.range(3) != 0;
  const FloatMatrix a = FloatMatrix::Random(rows, k);
  const FloatMatrix b = is_nk ? FloatMatrix::Random(cols, k) : FloatMatrix::Random(k, cols);
  FloatMatrix c(rows, cols);
  const std::vector<uint16_t> a16 = bf16_of(a), b16 = bf16_of(b);
  std::vector<uint16_t> out(static_cast<size_t>(rows * cols));

  HostGemmScratch scratch;
  const RowSegment segment{0, a16.data(), k * 2};
  HostGemmTile tile{.rows = rows, .cols = cols, .k = k, .a = {&segment, 1}};
  tile.b = b16.data();
  tile.b_stride_k = is_nk ? 1 : cols;
  tile.b_stride_n = is_nk ? k : 1;
  tile.out = out.data();
  tile.out_pitch_bytes = cols * 2;

  double eigen_s = 0;
  double tile_s = 0;
  for (auto _ : state) {
    double begin = thread_seconds();
    if (is_nk) {
      c.noalias() = a * b.transpose();
    } else {
      c.noalias() = a * b;
    }
    benchmark::DoNotOptimize(c.data());
    eigen_s += thread_seconds() - begin;
    begin = thread_seconds();
    host_gemm_tile(tile, scratch);
    benchmark::DoNotOptimize(out.data());
    tile_s += thread_seconds() - begin;
  }
  const double flop = 2.0 * static_cast<double>(rows * cols * k) * static_cast<double>(state.iterations());
  row.report({.ours = flop / tile_s * 1e-9,
              .baseline = flop / eigen_s * 1e-9,
              .baseline_name = "fp32 product by Eigen",
              .unit = "GFLOP/s",
              .note = to_string(scratch.variant())});
}
BENCHMARK(tile_against_eigen)
    ->ArgNames({"rows", "cols", "k", "nk"})
    ->Args({128, 256, 2048, 0})
    ->Args({128, 256, 2048, 1})
    ->Args({256, 256, 2048, 0})
    ->Args({128, 128, 2048, 0})
    ->Args({64, 256, 2048, 0})
    ->Args({8, 256, 2048, 1})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tilewire
