// A call that sums all ranks' products, on one rank: makes the data, and checks every element of what comes out. For tests
// of the ops that make such calls.
//
// Data are coded by position: small integers that bf16 and fp16 hold exactly and whose sums stay exact in fp32, so that
// each rank's product is exact in any order and all that is left are the roundings of the reference. Results are compared
// bit for bit, and no two rows, columns or ranks can be mistaken for each other.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reduction/reduction_operands.h"
#include "testing/op_test_support.h"
#include "testing/reduction_reference.h"
#include "testing/weighted_matmul_fixture.h"

namespace tilewire {

struct ReductionTestCall {
  std::vector<int32_t> layout;  // ranks of each node
  std::vector<int64_t> rows;    // of the sum: those of each rank, or one number where every rank gets all
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

// A call with `rows`, small and odd in all else, and another K on each rank.
inline ReductionTestCall odd_call(const std::vector<int32_t>& layout, std::vector<int64_t> rows, int64_t n = 19) {
  ReductionTestCall call{.layout = layout, .rows = std::move(rows), .k = {}, .n = n};
  int64_t ranks = 0;
  for (const int32_t of_node : layout) ranks += of_node;
  for (int64_t r = 0; r < ranks; ++r) call.k.push_back(17 + 8 * r);
  return call;
}
inline ReductionTestCall with_salt(ReductionTestCall call, uint64_t salt) {
  call.salt = salt;
  return call;
}
template <class Choice>
ReductionTestCall with_plan(ReductionTestCall call, const Choice& choice) {
  call.plan_json = to_json(choice);
  return call;
}

// Small integers: an element of a rank's a and b, of a rank's bias, and of the residual by its row of the whole.
inline double a_value(const ReductionTestCall& c, int32_t rank, int64_t row, int64_t i) {
  return static_cast<double>((row * 7 + i * 3 + (row ^ i) + rank * 5 + static_cast<int64_t>(c.salt)) % 13 - 6);
}
inline double b_value(const ReductionTestCall& c, int32_t rank, int64_t i, int64_t n) {
  return static_cast<double>((i * 5 + n * 11 + rank + (i ^ n) + static_cast<int64_t>(c.salt)) % 11 - 5);
}
inline double bias_value(int32_t rank, int64_t n) { return static_cast<double>((n + rank) % 5 - 2); }
inline double residual_value(int64_t row, int64_t n) { return static_cast<double>((row * 3 + n) % 17 - 8); }

// What a rank gets of the sum.
struct ReductionTestPart {
  int64_t first_row = 0;
  int64_t rows = 0;
  int32_t bias_of = 0;  // the rank in whose bias_value() the bias is
};

// What src/ops/reduction_calls_test.cc and reduction_rounding_test.cc know of an op that sums all ranks' products. The op
// specialises it beside its fixture, with
//   static ReductionTestPart part(Rank, int32_t ranks, int64_t rows)    what a rank gets of ranks * rows rows
//   static std::vector<int64_t> rows(std::vector<int64_t>)              of a ReductionTestCall, where ranks may get so many
//   static std::vector<std::string> forms()                             a plan of each of its forms, of several small
//                                                                       chunks; "" is the planner's
//   static std::vector<Op::PlanChoice> plans(int64_t chunk_rows, int64_t chunk_cols)    of each form, with and without
//                                                                       windows
template <class Op>
struct ReductionOpTraits;

class ReductionChecker {
 public:
  // Every element, exactly.
  void check() const {
    std::vector<Values> partials;
    for (size_t r = 0; r < c_.k.size(); ++r) partials.push_back(partial_of(static_cast<int32_t>(r)));
    check_elements(out(), fmt::format("the result on rank {}", rank_), [&](int64_t r, int64_t n) {
      std::vector<double> of_ranks;
      for (const Values& p : partials) of_ranks.push_back(p[static_cast<size_t>(r * c_.n + n)]);
      double sum = reduced(c_.layout, of_ranks, wire_types(c_.wire_dtype.value_or(c_.dtype)));
      if (c_.has_bias) sum = static_cast<float>(sum + bias_value(part_.bias_of, n));
      if (c_.has_residual) sum = static_cast<float>(sum + residual_value(part_.first_row + r, n));
      return sum;
    });
  }
  const OwnedMatrix& out() const { return weights_.out[0]; }
  // The poison at first is NaN, as the results of an aborted call are.
  std::vector<OwnedMatrix>& results() { return weights_.out; }

 protected:
  ReductionChecker(const ReductionTestCall& call, int32_t rank, const ReductionTestPart& part)
      : c_(call), rank_(rank), part_(part) {
    const int64_t total = sum_of(c_.rows), k = c_.k[static_cast<size_t>(rank)];
    const auto value = [&](int64_t r, int64_t i) { return a_value(c_, rank, r, i); };
    a_ = c_.is_a_transposed ? matrix_of(k, total, c_.dtype, [&](int64_t i, int64_t r) { return value(r, i); })
                            : matrix_of(total, k, c_.dtype, value);
    weights_.add(
        {.k = k,
         .n = c_.n,
         .out_rows = part.rows,
         .dtype = c_.dtype,
         .out_dtype = c_.out_dtype,
         .is_n_by_k = c_.is_n_by_k},
        [&](int64_t i, int64_t n) { return b_value(c_, rank, i, n); },
        [&](int64_t n) { return bias_value(part.bias_of, n); });
    residual_ = matrix_of(part.rows, c_.n, c_.dtype,
                          [&](int64_t r, int64_t n) { return residual_value(part.first_row + r, n); });
  }

  const ReductionTestCall& call() const { return c_; }
  // All but what an op has of its own.
  void give(ReductionArguments& args) {
    args.a = c_.is_a_transposed ? a_.transposed() : a_.view();
    weights_.give(args, c_.has_bias);
    if (c_.has_residual) args.residual = residual_.view();
    args.out_dtype = c_.out_dtype;
    args.wire_dtype = c_.wire_dtype;
    args.plan_json = c_.plan_json;
  }

 private:
  // A rank's product, of the rows that this rank gets.
  Values partial_of(int32_t rank) const {
    const int64_t k = c_.k[static_cast<size_t>(rank)];
    Values a, b;
    for (int64_t r = 0; r < part_.rows; ++r) {
      for (int64_t i = 0; i < k; ++i) a.push_back(a_value(c_, rank, part_.first_row + r, i));
    }
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t n = 0; n < c_.n; ++n) b.push_back(b_value(c_, rank, i, n));
    }
    return partial_product(part_.rows, k, c_.n, a, b);
  }

  ReductionTestCall c_;
  int32_t rank_;
  ReductionTestPart part_;
  OwnedMatrix a_, residual_;
  MatmulTestWeights weights_;
};

// A call on ranks of 2+2 on data whose sums are not exact in fp32, so that any other order of the additions shows.
template <class Op>
std::vector<std::byte> inexact_result(Session& session, OpCalls<Op>& op, DataType dtype, const std::string& plan_json) {
  const ReductionTestCall c{.layout = {2, 2},
                            .rows = ReductionOpTraits<Op>::rows({70, 33, 0, 50}),
                            .k = {60, 61, 300, 7},
                            .n = 81,
                            .dtype = dtype,
                            .has_bias = true,
                            .plan_json = plan_json};
  typename OpTestTraits<Op>::Checker checker(c, session.rank().value);
  auto args = checker.arguments();
  NormalNumbers normal(session.rank());
  const OwnedMatrix a = matrix_of(args.a.rows, args.a.cols, dtype, normal);
  const OwnedMatrix b = matrix_of(args.a.cols, c.n, dtype, normal);
  args.a = a.view();
  args.b = {b.view()};
  op.run(args);
  return checker.out().bytes();
}

// What op_fault_test.cc spoils of such a call: base of its OpTestTraits.
template <class Op>
struct SpoiledReduction {
  static void spoil(typename Op::Arguments& args) { args.b[0].rows += 1; }
  static constexpr const char* kSpoilText = "b does not fit a";
  static void alias_result(typename Op::Arguments& args) {
    args.make_results = [make = args.make_results, data = args.a.data](const typename Op::Problem& p) {
      MatrixView out = make(p);
      out.data = data;  // of the input that is looked at first: it may reach into the next one, too
      return out;
    };
  }
  static constexpr const char* kAliasText = "out overlaps a";
};

}  // namespace tilewire
