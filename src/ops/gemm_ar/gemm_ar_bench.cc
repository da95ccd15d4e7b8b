// How well communication hides under computation (see testing/overlap_bench.h), and what one shot is for: calls of few
// rows by either form.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "ops/gemm_ar/gemm_ar.h"
#include "testing/overlap_bench.h"

namespace tilewire::gemm_ar {
namespace {

constexpr int64_t kRows = 1024, kCols = 1024;
constexpr int32_t kChunkRows = 32, kChunkCols = 256;

struct Buffers {
  std::vector<uint16_t> a = std::vector<uint16_t>(kRows, 0x3f80);
  std::vector<uint16_t> b = std::vector<uint16_t>(kCols, 0x3f80);
  std::vector<uint16_t> out = std::vector<uint16_t>(kRows * kCols);

  // One column times one row, of so many rows.
  Arguments arguments(int64_t rows, const PlanChoice& choice) {
    Arguments args;
    args.a = {a.data(), rows, 1, 1, 1, DataType::bf16};
    args.b = {{b.data(), 1, kCols, kCols, 1, DataType::bf16}};
    args.plan_json = to_json(choice);
    args.make_results = [this, rows](const Problem&) {
      return MatrixView{out.data(), rows, kCols, kCols, 1, DataType::bf16};
    };
    return args;
  }
};

struct Overlap {
  using Op = gemm_ar::Op;
  using Buffers = gemm_ar::Buffers;
  static constexpr int64_t kTiles = kRows / kChunkRows * (kCols / kChunkCols);
  // Half the rank's share of the sums and of the results: 1 MiB together, in about 52 ms.
  static constexpr int64_t kNetworkBytes = 2 * (kRows / 4 * kCols * 2);

  static Arguments arguments(Buffers& m, OverlapCall call, const std::function<void()>& tile) {
    Arguments args = m.arguments(kRows, {.chunk_rows = kChunkRows,
                                         .chunk_cols = kChunkCols,
                                         .is_fused = call.is_fused,
                                         .gather_behind = 1,
                                         .cursors = {}});
    args.stand_in = [&tile, computes = call.computes](int64_t, int64_t) {
      if (computes) tile();
    };
    return args;
  }
};

void BM_Overlap(benchmark::State& state) { report_overlap<Overlap>(state, "multiply, then reduce"); }
BENCHMARK(BM_Overlap)->Apply(overlap_rows);

struct FormTimes {
  double one_shot_s = 0, two_shots_s = 0;
  std::string error;
};

// Calls in turns over a network with a latency, as medians; the numbers of rank 0.
FormTimes time_forms(int64_t rows) {
  constexpr int kRepeats = 31;
  Options options;
  options.arena_initial_bytes = 16 << 20;
  options.arena_reserve_bytes = 64 << 20;
  options.user_arena_reserve_bytes = 64 << 20;
  options.emulated_latency_us = 1000;  // so long that what two cores take for four ranks is little beside it
  options.workers = 1;
  FormTimes times;
  const auto outcomes = run_thread_cluster({2, 2}, options, [&](Session& session) {
    Operation op(session);
    Buffers buffers;
    const auto seconds = [&](bool is_one_shot) {
      const PlanChoice choice{
          .is_one_shot = is_one_shot, .chunk_rows = rows, .chunk_cols = kCols / 4, .gather_behind = 1, .cursors = {}};
      return op.run(buffers.arguments(rows, choice)).seconds;
    };
    std::vector<double> one, two;
    for (int i = 0; i < kRepeats; ++i) {
      one.push_back(seconds(true));
      two.push_back(seconds(false));
    }
    if (session.rank() == Rank{0}) times = {median_of(one), median_of(two), ""};
  });
  times.error = first_error(outcomes);
  return times;
}

// Argument: rows.
void BM_OneShot(benchmark::State& state) {
  BenchRow row(state, 2);
  FormTimes t;
  for (auto _ : state) {
    t = time_forms(state.range(0));
    state.SetIterationTime(t.one_shot_s);
    if (!t.error.empty()) state.SkipWithError(t.error.c_str());
  }
  if (!t.error.empty()) return;
  row.report({.ours = t.one_shot_s * 1e3,
              .baseline = t.two_shots_s * 1e3,
              .baseline_name = "two shots",
              .unit = "ms",
              .is_smaller_better = true,
              .goal = "<= baseline",
              .meets_goal = t.one_shot_s <= t.two_shots_s});
}
BENCHMARK(BM_OneShot)
    ->ArgName("rows")
    ->Arg(1)
    ->Arg(8)
    ->Arg(64)
    ->Iterations(1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tilewire::gemm_ar
