// Runs GEMM+ReduceScatter calls on thread ranks and checks every element. For tests.
//
// Data are coded by position: small integers that bf16 and fp16 hold exactly and whose sums stay exact in fp32, so that
// each rank's product is exact in any order and all that is left are the roundings of the reference. Results are compared
// bit for bit, and no two rows, columns or ranks can be mistaken for each other.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "executor/op_test_support.h"
#include "executor/weighted_matmul_fixture.h"
#include "ops/gemm_rs/gemm_rs.h"
#include "ops/gemm_rs/reference.h"

namespace tilewire::gemm_rs {

struct TestCall {
  std::vector<int32_t> layout;  // ranks of each node
  std::vector<int64_t> rows;    // of the result on each rank
  std::vector<int64_t> k;       // of each rank
  int64_t n = 0;
  DataType dtype = DataType::bf16;
  DataType out_dtype = DataType::fp32;
  std::optional<DataType> wire_dtype{};
  bool has_bias = false;
  bool has_residual = false;
  bool is_n_by_k = false;        // weights stored as [N, K]
  bool is_a_transposed = false;  // a stored as [K, M]
  std::string plan_json{};
  uint64_t salt = 0;  // other data in each call
};

// Small integers: an element of a rank's a and b, of a rank's bias, and of the residual by its row of the whole.
inline double a_value(const TestCall& c, int32_t rank, int64_t row, int64_t i) {
  return static_cast<double>((row * 7 + i * 3 + (row ^ i) + rank * 5 + static_cast<int64_t>(c.salt)) % 13 - 6);
}
inline double b_value(const TestCall& c, int32_t rank, int64_t i, int64_t n) {
  return static_cast<double>((i * 5 + n * 11 + rank + (i ^ n) + static_cast<int64_t>(c.salt)) % 11 - 5);
}
inline double bias_value(int32_t rank, int64_t n) { return static_cast<double>((n + rank) % 5 - 2); }
inline double residual_value(int64_t row, int64_t n) { return static_cast<double>((row * 3 + n) % 17 - 8); }

// One call on one rank: makes the data, calls, compares each element.
class CallChecker {
 public:
  CallChecker(const TestCall& call, int32_t rank) : c_(call), rank_(rank) {
    for (int32_t r = 0; r < rank; ++r) first_row_ += c_.rows[static_cast<size_t>(r)];
    const int64_t total = sum_of(c_.rows), k = c_.k[static_cast<size_t>(rank)];
    const auto value = [&](int64_t r, int64_t i) { return a_value(c_, rank, r, i); };
    a_ = c_.is_a_transposed ? matrix_of(k, total, c_.dtype, [&](int64_t i, int64_t r) { return value(r, i); })
                            : matrix_of(total, k, c_.dtype, value);
    weights_.add(
        {.k = k,
         .n = c_.n,
         .out_rows = own_rows(),
         .dtype = c_.dtype,
         .out_dtype = c_.out_dtype,
         .is_n_by_k = c_.is_n_by_k},
        [&](int64_t i, int64_t n) { return b_value(c_, rank, i, n); }, [&](int64_t n) { return bias_value(rank, n); });
    residual_ =
        matrix_of(own_rows(), c_.n, c_.dtype, [&](int64_t r, int64_t n) { return residual_value(first_row_ + r, n); });
  }

  Arguments arguments() {
    Arguments args;
    args.a = c_.is_a_transposed ? a_.transposed() : a_.view();
    weights_.give(args, c_.has_bias);
    if (c_.has_residual) args.residual = residual_.view();
    args.out_dtype = c_.out_dtype;
    args.wire_dtype = c_.wire_dtype;
    args.rows = {RowCounts::From::list, c_.rows};
    args.plan_json = c_.plan_json;
    args.make_results = [this](const Problem&) { return weights_.out[0].view(); };
    return args;
  }

  // Every element, exactly.
  void check() const {
    std::vector<Values> partials;
    for (size_t r = 0; r < c_.rows.size(); ++r) partials.push_back(partial_of(static_cast<int32_t>(r)));
    check_elements(out(), fmt::format("the result on rank {}", rank_), [&](int64_t r, int64_t n) {
      std::vector<double> of_ranks;
      for (const Values& p : partials) of_ranks.push_back(p[static_cast<size_t>(r * c_.n + n)]);
      double sum = reduced(c_.layout, of_ranks, wire_types(c_.wire_dtype.value_or(c_.dtype)));
      if (c_.has_bias) sum = static_cast<float>(sum + bias_value(rank_, n));
      if (c_.has_residual) sum = static_cast<float>(sum + residual_value(first_row_ + r, n));
      return sum;
    });
  }
  const OwnedMatrix& out() const { return weights_.out[0]; }
  // The poison at first is NaN, as the results of an aborted call are.
  std::vector<OwnedMatrix>& results() { return weights_.out; }

 private:
  int64_t own_rows() const { return c_.rows[static_cast<size_t>(rank_)]; }
  // A rank's product, of the rows that this rank gets.
  Values partial_of(int32_t rank) const {
    const int64_t k = c_.k[static_cast<size_t>(rank)];
    Values a, b;
    for (int64_t r = 0; r < own_rows(); ++r) {
      for (int64_t i = 0; i < k; ++i) a.push_back(a_value(c_, rank, first_row_ + r, i));
    }
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t n = 0; n < c_.n; ++n) b.push_back(b_value(c_, rank, i, n));
    }
    return partial_product(own_rows(), k, c_.n, a, b);
  }

  TestCall c_;
  int32_t rank_;
  int64_t first_row_ = 0;
  OwnedMatrix a_, residual_;
  MatmulTestWeights weights_;
};

inline void run_and_check(const Options& options, const std::vector<TestCall>& calls) {
  run_and_check_calls<Op, CallChecker>(calls.front().layout, options, calls);
}

}  // namespace tilewire::gemm_rs

namespace tilewire {

template <>
struct OpTestTraits<gemm_rs::Op> {
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

  static void spoil(gemm_rs::Arguments& args) { args.b[0].rows += 1; }
  static constexpr const char* kSpoilText = "b does not fit a";
  static void alias_result(gemm_rs::Arguments& args) {
    args.make_results = [make = args.make_results, data = args.b[0].data](const gemm_rs::Problem& p) {
      MatrixView out = make(p);
      out.data = data;
      return out;
    };
  }
  static constexpr const char* kAliasText = "out overlaps b";
};

}  // namespace tilewire
