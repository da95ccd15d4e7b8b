// Runs GEMM+ReduceScatter calls on thread ranks and checks every element. For tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/gemm_rs/gemm_rs.h"
#include "testing/reduction_fixture.h"

namespace tilewire::gemm_rs {

using TestCall = ReductionTestCall;

// One call on one rank: makes the data, calls, compares each element.
class CallChecker : public ReductionChecker {
 public:
  CallChecker(const TestCall& c, int32_t rank) : ReductionChecker(c, rank, part_of(c, rank)) {}

  Arguments arguments() {
    Arguments args;
    give(args);
    args.rows = {RowCounts::From::list, call().rows};
    args.make_results = [this](const Problem&) { return out().view(); };
    return args;
  }

 private:
  static ReductionTestPart part_of(const TestCall& c, int32_t rank) {
    ReductionTestPart part{.rows = c.rows[static_cast<size_t>(rank)], .bias_of = rank};
    for (int32_t r = 0; r < rank; ++r) part.first_row += c.rows[static_cast<size_t>(r)];
    return part;
  }
};

inline void run_and_check(const Options& options, const std::vector<TestCall>& calls) {
  run_and_check_calls<Op, CallChecker>(calls.front().layout, options, calls);
}

}  // namespace tilewire::gemm_rs

namespace tilewire {

template <>
struct ReductionOpTraits<gemm_rs::Op> {
  static ReductionTestPart part(Rank rank, int32_t, int64_t rows) { return {rank.value * rows, rows, rank.value}; }
  static std::vector<int64_t> rows(std::vector<int64_t> of_each_rank) { return of_each_rank; }
  static std::vector<std::string> forms() { return {""}; }
  static std::vector<gemm_rs::PlanChoice> plans(int64_t chunk_rows, int64_t chunk_cols) {
    std::vector<gemm_rs::PlanChoice> plans;
    for (const int64_t window : {0, 1, 3}) {
      plans.push_back({.chunk_rows = chunk_rows, .chunk_cols = chunk_cols, .window = window, .cursors = {}});
    }
    return plans;
  }
};

template <>
struct OpTestTraits<gemm_rs::Op> : SpoiledReduction<gemm_rs::Op> {
  using Checker = gemm_rs::CallChecker;

  static gemm_rs::TestCall small_call() {
    return {.layout = {2, 2}, .rows = {20, 3, 9, 11}, .k = {16, 8, 0, 24}, .n = 12};
  }
  static Checker small(Rank rank) { return {small_call(), rank.value}; }
  static Checker other(Rank rank) {
    gemm_rs::TestCall call = small_call();
    call.n = 20;
    return {call, rank.value};
  }
  static constexpr const char *kText = "N = 12", *kOtherText = "N = 20";
  static Checker busy(Rank rank) {
    const gemm_rs::PlanChoice many_chunks{.chunk_rows = 2, .chunk_cols = 8, .cursors = {}};
    return {
        {.layout = {2, 2}, .rows = {60, 60, 60, 60}, .k = {16, 16, 16, 16}, .n = 8, .plan_json = to_json(many_chunks)},
        rank.value};
  }
};

}  // namespace tilewire
