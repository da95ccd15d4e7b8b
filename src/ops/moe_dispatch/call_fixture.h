// Runs MoE dispatch calls on thread ranks and checks every row and every element. For tests.
//
// Data are coded by position: small integers that bf16 and fp16 hold exactly and whose sums stay exact in fp32, so that
// results are compared bit for bit and no two tokens, experts or columns can be mistaken for each other.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "ops/moe_dispatch/moe_dispatch.h"
#include "ops/moe_dispatch/reference.h"
#include "ops/moe_dispatch/routing_fixture.h"
#include "testing/op_test_support.h"

namespace tilewire::moe_dispatch {

struct TestCall {
  std::vector<int64_t> tokens;          // of each rank
  std::vector<int32_t> rank_of_expert;  // of each expert
  int64_t h = 0;
  int64_t cols = 0;
  int32_t top_k = 1;
  Skew skew = Skew::uniform;
  std::optional<int64_t> max_tokens{};
  std::optional<int64_t> max_source_tokens{};
  DataType dtype = DataType::bf16;
  DataType out_dtype = DataType::fp32;
  bool is_64_bit = false;
  bool is_n_by_k = false;  // weights stored as [I, H]
  std::string plan_json{};
  uint64_t salt = 0;  // other data and another routing in each call
};

// `experts` dealt out to the ranks in turn.
inline std::vector<int32_t> dealt_experts(int32_t experts, int32_t ranks) {
  std::vector<int32_t> rank_of;
  for (int32_t e = 0; e < experts; ++e) rank_of.push_back(e % ranks);
  return rank_of;
}

inline double x_value(const TestCall& c, int32_t rank, int64_t token, int64_t h) {
  return static_cast<double>((token * 7 + h * 3 + rank * 5 + (token ^ h) + static_cast<int64_t>(c.salt)) % 13 - 6);
}
inline double w_value(const TestCall& c, int32_t expert, int64_t h, int64_t n) {
  return static_cast<double>((h * 5 + n * 11 + expert * 3 + (h ^ n) + static_cast<int64_t>(c.salt)) % 11 - 5);
}

// One call on one rank: makes the data, calls, compares each element.
class CallChecker {
 public:
  CallChecker(const TestCall& call, int32_t rank)
      : c_(call),
        rank_(rank),
        routes_(
            draw_all_routes(c_.skew, c_.tokens, c_.top_k, static_cast<int32_t>(c_.rank_of_expert.size()), c_.salt + 1)),
        rows_(reference_rows(routes_.ids, c_.top_k, c_.rank_of_expert, rank)),
        results_(1) {
    x_ = matrix_of(c_.tokens[static_cast<size_t>(rank)], c_.h, c_.dtype,
                   [&](int64_t t, int64_t h) { return x_value(c_, rank, t, h); });
    for (int32_t e = 0; e < static_cast<int32_t>(c_.rank_of_expert.size()); ++e) {
      if (c_.rank_of_expert[static_cast<size_t>(e)] != rank) continue;
      w_.push_back(
          c_.is_n_by_k
              ? matrix_of(c_.cols, c_.h, c_.dtype, [&](int64_t n, int64_t h) { return w_value(c_, e, h, n); })
              : matrix_of(c_.h, c_.cols, c_.dtype, [&](int64_t h, int64_t n) { return w_value(c_, e, h, n); }));
    }
    const std::vector<int32_t>& ids = routes_.ids[static_cast<size_t>(rank)];
    wide_ids_.assign(ids.begin(), ids.end());
    offsets_.assign(w_.size() + 1, -7);
    make_room(c_.max_tokens.value_or(static_cast<int64_t>(rows_.size())));
  }
  CallChecker(const CallChecker&) = delete;
  CallChecker& operator=(const CallChecker&) = delete;
  CallChecker(CallChecker&&) = default;  // what arguments() has not been asked of yet

  Arguments arguments() {
    Arguments args;
    args.x = x_.view();
    args.routes = {.ids = routes_.of(Rank{rank_}).ids,
                   .tokens = routes_.tokens(Rank{rank_}),
                   .top_k = c_.top_k,
                   .token_stride = c_.top_k,
                   .is_64_bit = c_.is_64_bit};
    if (c_.is_64_bit) args.routes.ids = wide_ids_.data();
    for (const OwnedMatrix& w : w_) args.w.push_back(c_.is_n_by_k ? w.transposed() : w.view());
    args.cols = c_.cols;
    args.rank_of_expert = c_.rank_of_expert;
    args.out_dtype = c_.out_dtype;
    args.max_tokens = c_.max_tokens;
    args.max_source_tokens = c_.max_source_tokens;
    args.plan_json = c_.plan_json;
    args.make_results = [this](const Problem& p) {
      if (p.result_rows != results_[0].view().rows) make_room(p.result_rows);
      return Arguments::Results{results_[0].view(), origins_.data(), offsets_.data()};
    };
    return args;
  }

  // Every row once, in its place, with its origin; every element, exactly; zeros behind the last row.
  void check() const {
    const MatrixView& out = results_[0].view();
    ASSERT_GE(out.rows, static_cast<int64_t>(rows_.size()));
    check_offsets();
    for (int64_t row = 0; row < out.rows; ++row) {
      const bool is_row = row < static_cast<int64_t>(rows_.size());
      const ReferenceRow expected = is_row ? rows_[static_cast<size_t>(row)] : ReferenceRow{0, -1, -1, -1};
      const auto origin = origins_.begin() + 3 * row;
      ASSERT_EQ(std::vector<int32_t>(origin, origin + 3),
                std::vector<int32_t>({expected.rank, expected.token, expected.slot}))
          << "row " << row << " on rank " << rank_;
    }
    check_elements(results_[0], fmt::format("rank {}", rank_), [&](int64_t row, int64_t n) -> double {
      if (row >= static_cast<int64_t>(rows_.size())) return 0;
      const ReferenceRow& r = rows_[static_cast<size_t>(row)];
      return reference_element(
          c_.h, [&](int64_t h) { return x_value(c_, r.rank, r.token, h); },
          [&](int64_t h) { return w_value(c_, r.expert, h, n); });
    });
  }
  int64_t rows() const { return static_cast<int64_t>(rows_.size()); }
  const Routes& routes() const { return routes_; }
  // The poison at first is NaN, as the results of an aborted call are.
  std::vector<OwnedMatrix>& results() { return results_; }

 private:
  void make_room(int64_t rows) {
    results_[0] = OwnedMatrix(rows, c_.cols, c_.out_dtype);
    origins_.assign(static_cast<size_t>(3 * rows), -7);
  }
  // A histogram of the experts of all tokens.
  void check_offsets() const {
    std::vector<int64_t> counts(c_.rank_of_expert.size(), 0);
    for (const auto& ids : routes_.ids) {
      for (const int32_t id : ids) {
        if (id >= 0) ++counts[static_cast<size_t>(id)];
      }
    }
    std::vector<int64_t> expected(1, 0);
    for (size_t e = 0; e < counts.size(); ++e) {
      if (c_.rank_of_expert[e] == rank_) expected.push_back(expected.back() + counts[e]);
    }
    ASSERT_EQ(offsets_, expected) << "rank " << rank_;
  }

  TestCall c_;
  int32_t rank_;
  Routes routes_;
  std::vector<ReferenceRow> rows_;
  OwnedMatrix x_;
  std::vector<OwnedMatrix> w_, results_;
  std::vector<int64_t> wide_ids_, offsets_;
  std::vector<int32_t> origins_;
};

// Calls one after the other on one communicator; without max_tokens each is two. Returns what the last one reported, by
// rank.
inline std::vector<CallReport> run_and_check(const std::vector<int32_t>& layout, const Options& options,
                                             const std::vector<TestCall>& calls) {
  std::vector<CallReport> reports(calls.at(0).tokens.size());
  const auto outcomes = run_faulty_cluster(layout, options, [&](Session& session) {
    Operation op(session);
    for (const TestCall& call : calls) {
      CallChecker checker(call, session.rank().value);
      reports[static_cast<size_t>(session.rank().value)] = op.run(checker.arguments());
      checker.check();
    }
  });
  EXPECT_EQ(first_error(outcomes), "");
  return reports;
}

}  // namespace tilewire::moe_dispatch

namespace tilewire {

template <>
struct OpTestTraits<moe_dispatch::Op> {
  using Checker = moe_dispatch::CallChecker;

  static moe_dispatch::TestCall small_call() {
    return {.tokens = {20, 3, 9, 11},
            .rank_of_expert = moe_dispatch::dealt_experts(6, 4),
            .h = 16,
            .cols = 12,
            .top_k = 2,
            .max_tokens = 60};
  }
  static Checker small(Rank rank) { return {small_call(), rank.value}; }
  static Checker other(Rank rank) {
    moe_dispatch::TestCall call = small_call();
    call.h = 24;
    return {call, rank.value};
  }
  static constexpr const char *kText = "H = 16", *kOtherText = "H = 24";
  static Checker busy(Rank rank) {
    const moe_dispatch::PlanChoice many_chunks{
        .block_tokens = 4, .window = 2, .chunk_tokens = 1, .tile_rows = 16, .tile_cols = 16, .cursors = {}};
    moe_dispatch::TestCall call = small_call();
    call.tokens = {60, 60, 60, 60};
    call.max_tokens = 400;
    call.max_source_tokens = 60;
    call.plan_json = to_json(many_chunks);
    return {call, rank.value};
  }

  static void spoil(moe_dispatch::Arguments& args) { args.w[0].rows -= 1; }
  static constexpr const char* kSpoilText = "w1 does not fit x";
  static void alias_result(moe_dispatch::Arguments& args) {
    args.make_results = [x = args.x, make = args.make_results](const moe_dispatch::Problem& p) {
      moe_dispatch::Arguments::Results results = make(p);
      results.out.data = x.data;
      return results;
    };
  }
  static constexpr const char* kAliasText = "out overlaps x";
};

}  // namespace tilewire
