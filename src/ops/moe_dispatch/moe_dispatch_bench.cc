// How well the way of rows hides under computation; see testing/overlap_bench.h.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "ops/moe_dispatch/moe_dispatch.h"
#include "testing/overlap_bench.h"

namespace tilewire::moe_dispatch {
namespace {

constexpr int64_t kTokens = 512, kDepth = 2048, kCols = 512;
constexpr int32_t kTileRows = 32, kTileCols = 256;
constexpr int64_t kRows = 2 * kTokens;  // that each rank gets

struct Overlap {
  using Op = moe_dispatch::Op;
  struct Buffers {
    std::vector<uint16_t> x = std::vector<uint16_t>(kTokens * kDepth, 0x3f80);
    std::vector<uint16_t> w = std::vector<uint16_t>(kDepth * kCols, 0x3f80);
    std::vector<uint16_t> out = std::vector<uint16_t>(kRows * kCols);
    std::vector<int32_t> ids, origins = std::vector<int32_t>(3 * kRows);
    std::vector<int64_t> offsets = std::vector<int64_t>(2);

    // One expert a rank; each token goes to one of either node.
    Buffers() {
      for (int32_t token = 0; token < kTokens; ++token) ids.insert(ids.end(), {token % 2, 2 + token % 2});
    }
  };
  static constexpr int64_t kTiles = kRows / kTileRows * (kCols / kTileCols);
  static constexpr int64_t kNetworkBytes = kTokens * (kDepth * 2 + 16);  // 2 MiB, in about 105 ms

  static Arguments arguments(Buffers& m, OverlapCall call, const std::function<void()>& tile) {
    const int64_t cols = call.computes ? kCols : 0;
    Arguments args;
    args.x = {m.x.data(), kTokens, kDepth, kDepth, 1, DataType::bf16};
    args.routes = {.ids = m.ids.data(), .tokens = kTokens, .top_k = 2, .token_stride = 2};
    args.w = {{m.w.data(), kDepth, cols, kCols, 1, DataType::bf16}};
    args.cols = cols;
    args.max_tokens = kRows;
    args.max_source_tokens = kTokens;
    args.plan_json = to_json(PlanChoice{.block_tokens = call.is_fused ? 64 : kTokens,
                                        .window = call.is_fused ? 8 : 1,
                                        .chunk_tokens = 32,
                                        .is_fused = call.is_fused,
                                        .tile_rows = kTileRows,
                                        .tile_cols = kTileCols,
                                        .raster_rows = 1,
                                        .cursors = {}});
    args.stand_in = [&tile](const TileWork&) { tile(); };
    args.make_results = [&m, cols](const Problem& p) {
      const MatrixView out{m.out.data(), p.result_rows, cols, std::max<int64_t>(cols, 1), 1, DataType::bf16};
      return Arguments::Results{out, m.origins.data(), m.offsets.data()};
    };
    return args;
  }
};

void BM_Overlap(benchmark::State& state) { report_overlap<Overlap>(state, "dispatch, then multiply"); }
BENCHMARK(BM_Overlap)->Apply(overlap_rows);

}  // namespace
}  // namespace tilewire::moe_dispatch
