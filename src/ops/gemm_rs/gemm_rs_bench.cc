// How well communication hides under computation; see testing/overlap_bench.h.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "ops/gemm_rs/gemm_rs.h"
#include "testing/overlap_bench.h"

namespace tilewire::gemm_rs {
namespace {

constexpr int64_t kRows = 2048, kCols = 1024;  // of the whole result
constexpr int32_t kChunkRows = 64, kChunkCols = 256;

struct Overlap {
  using Op = gemm_rs::Op;
  struct Buffers {
    std::vector<uint16_t> a = std::vector<uint16_t>(kRows, 0x3f80);
    std::vector<uint16_t> b = std::vector<uint16_t>(kCols, 0x3f80);
    std::vector<uint16_t> out = std::vector<uint16_t>(kRows / 4 * kCols);
  };
  static constexpr int64_t kTiles = kRows / kChunkRows * (kCols / kChunkCols);
  static constexpr int64_t kNetworkBytes = kRows / 4 * kCols * 2;  // 1 MiB, in about 52 ms

  static Arguments arguments(Buffers& m, OverlapCall call, const std::function<void()>& tile) {
    Arguments args;
    args.a = {m.a.data(), kRows, 1, 1, 1, DataType::bf16};
    args.b = {{m.b.data(), 1, kCols, kCols, 1, DataType::bf16}};
    args.plan_json = to_json(
        PlanChoice{.chunk_rows = kChunkRows, .chunk_cols = kChunkCols, .is_fused = call.is_fused, .cursors = {}});
    args.stand_in = [&tile, computes = call.computes](int64_t, int64_t) {
      if (computes) tile();
    };
    args.make_results = [&m](const Problem& p) {
      return MatrixView{m.out.data(), p.rows[0], kCols, kCols, 1, DataType::bf16};
    };
    return args;
  }
};

void BM_Overlap(benchmark::State& state) { report_overlap<Overlap>(state, "multiply, then reduce"); }
BENCHMARK(BM_Overlap)->Apply(overlap_rows);

}  // namespace
}  // namespace tilewire::gemm_rs
