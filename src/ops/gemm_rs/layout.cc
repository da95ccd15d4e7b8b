#include "ops/gemm_rs/layout.h"

#include <algorithm>

namespace tilewire::gemm_rs {

ReductionCut cut_of(const Problem& p, const PlanChoice& choice) {
  const int64_t most_rows = std::max<int64_t>(1, *std::max_element(p.rows.begin(), p.rows.end()));
  return {.rows = p.rows,
          .cols = p.n,
          .chunk_rows = std::min(choice.chunk_rows, most_rows),
          .chunk_cols = std::min(choice.chunk_cols, std::max<int64_t>(1, p.n)),
          .window = choice.window,
          .band_blocks = choice.band_blocks,
          .own_behind = choice.own_behind};
}

ReductionLayout layout_of(const Problem& p, const PlanChoice& choice, const PlanContext& x) {
  const ReductionCut cut = cut_of(p, choice);
  return reduction_layout(cut, reduction_needs(x.topology, cut), wire_types(p.wire_dtype), x);
}

}  // namespace tilewire::gemm_rs
