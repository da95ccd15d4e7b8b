// How well communication hides under computation; see testing/overlap_bench.h.
#include "ops/attention/attention.h"

#include <benchmark/benchmark.h>

#include <vector>

#include "testing/overlap_bench.h"

namespace tilewire::attention {
namespace {

constexpr int64_t kRows = 256, kHeads = 8, kHeadDim = 128;
constexpr int32_t kTileRows = 64;

struct Overlap {
  using Op = attention::Op;
  struct Buffers {
    std::vector<uint16_t> tokens = std::vector<uint16_t>(kRows * kHeads * kHeadDim, 0x3c00);
    std::vector<uint16_t> out = std::vector<uint16_t>(kRows * kHeads * kHeadDim);
    std::vector<float> lse = std::vector<float>(kRows * kHeads);
  };
  // An item comes to each of the four ranks' keys.
  static constexpr int64_t kTiles = 4 * kHeads * (kRows / kTileRows);
  static constexpr int64_t kNetworkBytes = kRows * kHeads * 2 * kHeadDim * 2;  // 1 MiB, in about 52 ms

  static Arguments arguments(Buffers& m, OverlapCall call, const std::function<void()>& tile) {
    Arguments args;
    args.q = {.data = m.tokens.data(), .batch = 1, .rows = kRows, .heads = kHeads, .dim = kHeadDim};
    args.q.row_stride = kHeads * kHeadDim;
    args.q.head_stride = kHeadDim;
    args.k = args.v = args.q;
    args.plan_json = to_json(
        PlanChoice{.chunk_rows = 64, .is_fused = call.is_fused, .tile_rows = kTileRows, .workers = 1, .cursors = {}});
    args.stand_in = [&tile, computes = call.computes](const ItemWork&) {
      if (computes) tile();
    };
    args.make_results = [&m](const Problem&) {
      return Arguments::Results{{m.out.data(), kRows, kHeads * kHeadDim, kHeads * kHeadDim, 1, DataType::bf16},
                                {m.lse.data(), kHeads, kRows, kRows, 1, DataType::fp32}};
    };
    return args;
  }
};

void BM_Overlap(benchmark::State& state) { report_overlap<Overlap>(state, "gather, then attend"); }
BENCHMARK(BM_Overlap)->Apply(overlap_rows);

}  // namespace
}  // namespace tilewire::attention
