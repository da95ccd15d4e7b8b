// How well communication hides under computation; see testing/overlap_bench.h.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "ops/ag_gemm/ag_gemm.h"
#include "testing/overlap_bench.h"

namespace tilewire::ag_gemm {
namespace {

constexpr int64_t kRows = 512, kDepth = 2048, kCols = 512;
constexpr int32_t kTileRows = 32, kTileCols = 256;

struct Overlap {
  using Op = ag_gemm::Op;
  struct Buffers {
    std::vector<uint16_t> a = std::vector<uint16_t>(kRows * kDepth, 0x3f80);
    std::vector<uint16_t> b = std::vector<uint16_t>(kDepth * kCols, 0x3f80);
    std::vector<uint16_t> out = std::vector<uint16_t>(4 * kRows * kCols);
  };
  static constexpr int64_t kTiles = 4 * kRows / kTileRows * (kCols / kTileCols);
  static constexpr int64_t kNetworkBytes = kRows * kDepth * 2;  // 2 MiB, in about 105 ms

  static Arguments arguments(Buffers& m, OverlapCall call, const std::function<void()>& tile) {
    const int64_t cols = call.computes ? kCols : 0;
    Arguments args;
    args.a = {m.a.data(), kRows, kDepth, kDepth, 1, DataType::bf16};
    args.b = {{m.b.data(), kDepth, cols, kCols, 1, DataType::bf16}};
    args.plan_json = to_json(PlanChoice{.chunk_rows = 32,
                                        .is_fused = call.is_fused,
                                        .tile_rows = kTileRows,
                                        .tile_cols = kTileCols,
                                        .raster_rows = 1,
                                        .workers = 1,
                                        .cursors = {}});
    args.stand_in = [&tile](const TileWork&) { tile(); };
    args.make_results = [&m, cols](const Problem& p) {
      return Arguments::Results{{{m.out.data(), p.total_rows(), cols, std::max<int64_t>(cols, 1), 1, DataType::bf16}},
                                {}};
    };
    return args;
  }
};

void BM_Overlap(benchmark::State& state) { report_overlap<Overlap>(state, "gather, then multiply"); }
BENCHMARK(BM_Overlap)->Apply(overlap_rows);

}  // namespace
}  // namespace tilewire::ag_gemm
