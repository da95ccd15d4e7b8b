// GEMM+ReduceScatter for the simulator: which memory each role's work reads and writes, and what it costs. The iterators
// are those of schedule.h; nothing is computed here that they do not say.
#pragma once

#include <cstdint>

#include "ops/gemm_rs/plan.h"
#include "ops/gemm_rs/schedule.h"
#include "schedule/simulator/reduction_model.h"

namespace tilewire::gemm_rs {

struct RankModel : ReductionModel<Schedule> {
  using Problem = gemm_rs::Problem;
  using Choice = PlanChoice;
  using Tables = ScheduleTables;
  static constexpr const char* const* kFamilyNames = gemm_rs::kFamilyNames;

  RankModel(const Schedule& s, const PlanChoice& choice, const Problem& problem)
      : ReductionModel{s, choice.cursors, problem.k, size_bytes(problem.out_dtype)} {}

  using ReductionModel::touch;
  void touch(const FinishWork& w, Touch& touch) const { touch_result(w.chunk, w.chunk.chunk.value, touch); }

  int64_t tiles() const { return int64_t{schedule.map.total_chunks()} + schedule.map.chunks_of(schedule.me()); }
};

}  // namespace tilewire::gemm_rs
