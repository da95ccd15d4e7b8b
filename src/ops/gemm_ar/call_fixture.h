// Runs GEMM+AllReduce calls on thread ranks and checks every element. For tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/gemm_ar/gemm_ar.h"
#include "testing/reduction_fixture.h"

namespace tilewire::gemm_ar {

using TestCall = ReductionTestCall;  // rows: one number

// One call on one rank: makes the data, calls, compares each element.
class CallChecker : public ReductionChecker {
 public:
  CallChecker(const TestCall& c, int32_t rank) : ReductionChecker(c, rank, {.rows = sum_of(c.rows)}) {}

  Arguments arguments() {
    Arguments args;
    give(args);
    args.make_results = [this](const Problem&) { return out().view(); };
    return args;
  }
};

// Plans of either form that are small enough for tests.
inline PlanChoice two_shots(int64_t chunk_rows, int64_t chunk_cols, int64_t window = 0) {
  return {.chunk_rows = chunk_rows, .chunk_cols = chunk_cols, .window = window, .cursors = {}};
}
inline PlanChoice one_shot_plan(int64_t chunk_rows, int64_t chunk_cols) {
  return {.is_one_shot = true, .chunk_rows = chunk_rows, .chunk_cols = chunk_cols, .cursors = {}};
}

inline void run_and_check(const Options& options, const std::vector<TestCall>& calls) {
  run_and_check_calls<Op, CallChecker>(calls.front().layout, options, calls);
}

}  // namespace tilewire::gemm_ar

namespace tilewire {

template <>
struct ReductionOpTraits<gemm_ar::Op> {
  static ReductionTestPart part(Rank, int32_t ranks, int64_t rows) { return {.rows = ranks * rows}; }
  static std::vector<int64_t> rows(const std::vector<int64_t>& of_each_rank) { return {sum_of(of_each_rank)}; }
  static std::vector<std::string> forms() {
    return {to_json(gemm_ar::two_shots(16, 16)), to_json(gemm_ar::one_shot_plan(16, 16))};
  }
  static std::vector<gemm_ar::PlanChoice> plans(int64_t chunk_rows, int64_t chunk_cols) {
    std::vector<gemm_ar::PlanChoice> plans = {gemm_ar::one_shot_plan(chunk_rows, chunk_cols)};
    for (const int64_t window : {0, 1, 3}) plans.push_back(gemm_ar::two_shots(chunk_rows, chunk_cols, window));
    return plans;
  }
};

template <>
struct OpTestTraits<gemm_ar::Op> : SpoiledReduction<gemm_ar::Op> {
  using Checker = gemm_ar::CallChecker;

  static gemm_ar::TestCall small_call() {
    return {
        .layout = {2, 2}, .rows = {23}, .k = {16, 8, 0, 24}, .n = 12, .plan_json = to_json(gemm_ar::two_shots(8, 8))};
  }
  static Checker small(Rank rank) { return {small_call(), rank.value}; }
  static Checker other(Rank rank) {
    gemm_ar::TestCall call = small_call();
    call.n = 20;
    call.plan_json = to_json(gemm_ar::one_shot_plan(8, 8));
    return {call, rank.value};
  }
  static constexpr const char *kText = "N = 12", *kOtherText = "N = 20";
  static Checker busy(Rank rank) {
    return {{.layout = {2, 2},
             .rows = {120},
             .k = {16, 16, 16, 16},
             .n = 8,
             .plan_json = to_json(gemm_ar::two_shots(2, 8))},
            rank.value};
  }
};

}  // namespace tilewire
