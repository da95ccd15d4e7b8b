// Runs AllGather+GEMM calls on thread ranks and checks every element. For tests.
//
// Data are coded by position: small integers that bf16 and fp16 hold exactly and whose sums stay exact in fp32, so that
// results are compared bit for bit and no two rows or columns can be mistaken for each other.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "ops/ag_gemm/ag_gemm.h"
#include "ops/ag_gemm/reference.h"
#include "testing/op_test_support.h"
#include "testing/weighted_matmul_fixture.h"

namespace tilewire::ag_gemm {

struct TestCall {
  std::vector<int64_t> rows;
  int64_t k = 0;
  std::vector<int64_t> cols;
  DataType dtype = DataType::bf16;
  DataType out_dtype = DataType::fp32;
  bool wants_gathered = false;
  bool has_bias = false;
  bool is_n_by_k = false;  // weights stored as [N, K]
  std::string plan_json{};
  uint64_t salt = 0;  // other data in each call
};

// An element of a as the row of all ranks' rows, of b of weight w, and of its bias: small integers.
inline double a_value(const TestCall& c, int64_t row, int64_t i) {
  return static_cast<double>((row * 7 + i * 3 + (row ^ i) + static_cast<int64_t>(c.salt)) % 13 - 6);
}
inline double b_value(const TestCall& c, int32_t rank, int64_t w, int64_t i, int64_t n) {
  return static_cast<double>((i * 5 + n * 11 + w * 3 + rank + (i ^ n) + static_cast<int64_t>(c.salt)) % 11 - 5);
}
inline double bias_value(int32_t rank, int64_t n) { return static_cast<double>((n + rank) % 5 - 2); }

// One call on one rank: makes the data, calls, compares each element. Returns what the call reported.
class CallChecker {
 public:
  CallChecker(const TestCall& call, int32_t rank) : c_(call), rank_(rank) {
    int64_t first = 0;
    for (int32_t r = 0; r < rank; ++r) first += c_.rows[r];
    for (const int64_t r : c_.rows) total_ += r;
    a_ = matrix_of(c_.rows[rank], c_.k, c_.dtype, [&](int64_t r, int64_t i) { return a_value(c_, first + r, i); });
    for (size_t w = 0; w < c_.cols.size(); ++w) {
      const auto value = [&](int64_t i, int64_t n) { return b_value(c_, rank, static_cast<int64_t>(w), i, n); };
      weights_.add(matmul_size(w), value, [&](int64_t n) { return bias_value(rank, n); });
    }
    if (c_.wants_gathered) gathered_ = OwnedMatrix(total_, c_.k, c_.dtype);
  }

  Arguments arguments() {
    Arguments args;
    args.a = a_.view();
    weights_.give(args, c_.has_bias);
    args.out_dtype = c_.out_dtype;
    args.rows = {RowCounts::From::list, c_.rows};
    args.wants_gathered = c_.wants_gathered;
    args.plan_json = c_.plan_json;
    args.make_results = [this](const Problem&) { return Arguments::Results{weights_.outs(), gathered_.view()}; };
    return args;
  }

  // Every element, exactly.
  void check() const {
    for (size_t w = 0; w < c_.cols.size(); ++w) {
      const std::vector<double> expected = expected_of(static_cast<int64_t>(w));
      check_elements(out(w), fmt::format("weight {} on rank {}", w, rank_),
                     [&](int64_t r, int64_t n) { return expected[static_cast<size_t>(r * c_.cols[w] + n)]; });
    }
    check_elements(gathered_, "gathered", [&](int64_t r, int64_t i) { return a_value(c_, r, i); });
  }
  const OwnedMatrix& out(size_t w) const { return weights_.out[w]; }
  // The poison at first is NaN, as the results of an aborted call are.
  std::vector<OwnedMatrix>& results() { return weights_.out; }

 private:
  MatmulTestSize matmul_size(size_t w) const {
    return {.k = c_.k,
            .n = c_.cols[w],
            .out_rows = total_,
            .dtype = c_.dtype,
            .out_dtype = c_.out_dtype,
            .is_n_by_k = c_.is_n_by_k};
  }
  std::vector<double> expected_of(int64_t w) const {
    const int64_t n = c_.cols[w];
    std::vector<double> a, b, bias;
    for (int64_t r = 0; r < total_; ++r) {
      for (int64_t i = 0; i < c_.k; ++i) a.push_back(a_value(c_, r, i));
    }
    for (int64_t i = 0; i < c_.k; ++i) {
      for (int64_t j = 0; j < n; ++j) b.push_back(b_value(c_, rank_, w, i, j));
    }
    for (int64_t j = 0; c_.has_bias && j < n; ++j) bias.push_back(bias_value(rank_, j));
    return reference({.rows = total_, .k = c_.k, .n = n}, a, b, bias);
  }

  TestCall c_;
  int32_t rank_;
  int64_t total_ = 0;
  OwnedMatrix a_, gathered_;
  MatmulTestWeights weights_;
};

inline void run_and_check(const std::vector<int32_t>& layout, const Options& options,
                          const std::vector<TestCall>& calls) {
  run_and_check_calls<Op, CallChecker>(layout, options, calls);
}

}  // namespace tilewire::ag_gemm

namespace tilewire {

template <>
struct OpTestTraits<ag_gemm::Op> {
  using Checker = ag_gemm::CallChecker;

  static ag_gemm::TestCall small_call() { return {.rows = {20, 3, 9, 11}, .k = 16, .cols = {12}}; }
  static Checker small(Rank rank) { return {small_call(), rank.value}; }
  static Checker other(Rank rank) {
    ag_gemm::TestCall call = small_call();
    call.k = 24;
    return {call, rank.value};
  }
  static constexpr const char *kText = "K = 16", *kOtherText = "K = 24";
  static Checker busy(Rank rank) {
    const ag_gemm::PlanChoice many_chunks{.chunk_rows = 2,
                                          .is_fused = true,
                                          .tile_rows = 16,
                                          .tile_cols = 16,
                                          .raster_rows = 1,
                                          .workers = 1,
                                          .cursors = {}};
    return {{.rows = {64, 64, 64, 64}, .k = 16, .cols = {8}, .plan_json = to_json(many_chunks)}, rank.value};
  }

  static void spoil(ag_gemm::Arguments& args) { args.b[0].rows -= 1; }
  static constexpr const char* kSpoilText = "b does not fit a";
  static void alias_result(ag_gemm::Arguments& args) {
    args.make_results = [a = args.a](const ag_gemm::Problem& p) {  // the one that is looked at first
      return ag_gemm::Arguments::Results{{{a.data, p.total_rows(), p.cols[0], p.cols[0], 1, p.out_dtype}}, {}};
    };
  }
  static constexpr const char* kAliasText = "out overlaps a";
  static void exchange(ag_gemm::Arguments& args) { args.rows = {RowCounts::From::exchange, {}}; }
};

}  // namespace tilewire
