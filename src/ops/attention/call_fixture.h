// Runs ring attention on thread ranks and checks every element of out and lse against attention on one rank in double.
// For tests.
//
// Data are coded by rank, row, head and element, so that no two can be mistaken for each other, and what a row may see is
// asked of the positions one by one.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ops/attention/reference.h"
#include "ops/attention/attention.h"
#include "testing/op_test_support.h"

namespace tilewire::attention {

struct TestCall {
  Problem problem;  // of all ranks; out_dtype too
  std::string plan_json{};
  double scale = 0;       // 0: the default
  double key_factor = 1;  // of the keys of rank `factor_rank`
  int32_t factor_rank = 0;
  bool is_bhsd = false;  // memory laid out as [batch, heads, rows, dim]
  uint64_t salt = 0;     // other data in each call
};

// With bf16 heads of 64.
inline TestCall call(const std::vector<int64_t>& rows, bool is_causal = true, int64_t q_heads = 2,
                     int64_t kv_heads = 1) {
  return {.problem = {.rows = rows,
                      .kv_rows = rows,
                      .batch = 1,
                      .q_heads = q_heads,
                      .kv_heads = kv_heads,
                      .head_dim = 64,
                      .dtype = DataType::bf16,
                      .is_causal = is_causal,
                      .out_dtype = DataType::bf16}};
}

// Which tensor an element is of.
enum class Tensor : uint64_t { query, key, value };
struct Element {
  Tensor of = Tensor::query;
  int32_t rank = 0;
  int64_t batch = 0, row = 0, head = 0, dim = 0;
};

// Evenly from -1 to 1, as the dtype holds it.
inline double value_of(const TestCall& c, const Element& e) {
  uint64_t h = c.salt * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(e.of);
  for (const int64_t part : {int64_t{e.rank}, e.batch, e.row, e.head, e.dim}) {
    h = (h ^ static_cast<uint64_t>(part + 1)) * 0xff51afd7ed558ccdu;
    h ^= h >> 32;
  }
  double value = static_cast<double>(h >> 11) / static_cast<double>(uint64_t{1} << 52) - 1;
  if (e.of == Tensor::key && e.rank == c.factor_rank) value *= c.key_factor;
  return rounded(value, c.problem.dtype);
}

// A tensor of heads with its own memory.
class OwnedHeads {
 public:
  OwnedHeads() = default;
  template <class Value>
  OwnedHeads(int64_t batch, int64_t rows, int64_t heads, int64_t dim, DataType dtype, bool is_bhsd, const Value& value)
      : memory_(batch * rows * heads, dim, dtype) {
    view_ = {.data = memory_.view().data, .batch = batch, .rows = rows, .heads = heads, .dim = dim, .dtype = dtype};
    view_.batch_stride = rows * heads * dim;
    view_.row_stride = is_bhsd ? dim : heads * dim;
    view_.head_stride = is_bhsd ? rows * dim : dim;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t line = (b * view_.batch_stride + r * view_.row_stride + h * view_.head_stride) / dim;
          for (int64_t d = 0; d < dim; ++d) memory_.set(line, d, value(b, r, h, d));
        }
      }
    }
  }
  const HeadsView& view() const { return view_; }

 private:
  OwnedMatrix memory_;
  HeadsView view_;
};

// How far a result was from the reference, of the largest that its roundings allow, and absolutely.
struct CallErrors {
  double of_allowed = 0;
  double largest = 0;
  std::string worst{};
};

// One call on one rank: makes the data, calls, compares each element.
class CallChecker {
 public:
  CallChecker(const TestCall& call, int32_t rank) : c_(call), rank_(rank) {
    const Problem& p = c_.problem;
    const auto tensor = [&](Tensor of, int64_t rows, int64_t heads) {
      return OwnedHeads(p.batch, rows, heads, p.head_dim, p.dtype, c_.is_bhsd,
                        [&](int64_t b, int64_t r, int64_t h, int64_t d) {
                          return value_of(c_, {of, rank_, b, r, h, d});
                        });
    };
    q_ = tensor(Tensor::query, own_rows(), p.q_heads);
    k_ = tensor(Tensor::key, p.kv_rows[static_cast<size_t>(rank)], p.kv_heads);
    v_ = tensor(Tensor::value, p.kv_rows[static_cast<size_t>(rank)], p.kv_heads);
    results_.emplace_back(p.batch * own_rows(), p.q_heads * p.head_dim, p.out_dtype);
    results_.emplace_back(p.batch * p.q_heads, own_rows(), DataType::fp32);
  }

  Arguments arguments() {
    const Problem& p = c_.problem;
    Arguments args{.q = q_.view(), .k = k_.view(), .v = v_.view(), .is_causal = p.is_causal};
    if (c_.scale != 0) args.scale = c_.scale;
    args.placement = p.placement;
    if (p.placement == Placement::given) {
      args.positions = expanded(p.given[static_cast<size_t>(rank_)]);
      args.kv_positions = expanded(p.given_kv[static_cast<size_t>(rank_)]);
    }
    args.documents = p.documents;
    args.kv_documents = p.kv_documents;
    args.rows = {RowCounts::From::list, p.rows};
    args.kv_rows = {RowCounts::From::list, p.kv_rows};
    args.out_dtype = p.out_dtype;
    args.plan_json = c_.plan_json;
    args.make_results = [this](const Problem&) { return Arguments::Results{out().view(), lse().view()}; };
    return args;
  }

  // Every element.
  void check() const {
    const CallErrors errors = compare();
    EXPECT_LE(errors.of_allowed, 1) << c_.problem.text() << " " << c_.plan_json << "\n" << errors.worst;
  }
  CallErrors compare() const {
    CallErrors errors;
    const Problem& p = c_.problem;
    const std::vector<int64_t> queries = expanded(p.positions()[static_cast<size_t>(rank_)]);
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t kv_head = 0; kv_head < p.kv_heads; ++kv_head) {
        const Keys keys = keys_of(b, kv_head);
        for (int64_t row = 0; row < own_rows(); ++row) {
          const std::vector<size_t> seen = seen_by(queries[static_cast<size_t>(row)], keys);
          for (int64_t head = 0; head < p.heads_of_pair(); ++head) {
            compare_row(b, kv_head * p.heads_of_pair() + head, row, keys, seen, errors);
          }
        }
      }
    }
    return errors;
  }
  const OwnedMatrix& out() const { return results_[0]; }
  const OwnedMatrix& lse() const { return results_[1]; }
  // The poison at first is NaN, as the results of an aborted call are.
  std::vector<OwnedMatrix>& results() { return results_; }

 private:
  int64_t own_rows() const { return c_.problem.rows[static_cast<size_t>(rank_)]; }

  // The rule of masks in words, not asked of MaskRule.
  bool sees(int64_t query, int64_t key) const {
    const Problem& p = c_.problem;
    if (p.documents.empty()) return !p.is_causal || key <= query + p.total_kv_rows() - p.total_rows();
    for (size_t d = 0; d + 1 < p.documents.size(); ++d) {
      const bool has_query = query >= p.documents[d] && query < p.documents[d + 1];
      const bool has_key = key >= p.kv_documents[d] && key < p.kv_documents[d + 1];
      if (has_query && has_key) return !p.is_causal || p.documents[d + 1] - query <= p.kv_documents[d + 1] - key;
    }
    return false;
  }

  // Those of all ranks, of one head.
  struct Keys {
    std::vector<int64_t> positions;
    std::vector<double> keys, values;  // [positions, head dim]
  };
  Keys keys_of(int64_t b, int64_t kv_head) const {
    const Problem& p = c_.problem;
    Keys all;
    const std::vector<Positions> positions = p.kv_positions();
    for (int32_t r = 0; r < static_cast<int32_t>(positions.size()); ++r) {
      const std::vector<int64_t> of_rank = expanded(positions[static_cast<size_t>(r)]);
      all.positions.insert(all.positions.end(), of_rank.begin(), of_rank.end());
      for (int64_t row = 0; row < static_cast<int64_t>(of_rank.size()); ++row) {
        for (int64_t d = 0; d < p.head_dim; ++d) {
          all.keys.push_back(value_of(c_, {Tensor::key, r, b, row, kv_head, d}));
          all.values.push_back(value_of(c_, {Tensor::value, r, b, row, kv_head, d}));
        }
      }
    }
    return all;
  }
  std::vector<size_t> seen_by(int64_t query, const Keys& keys) const {
    std::vector<size_t> seen;
    for (size_t i = 0; i < keys.positions.size(); ++i) {
      if (sees(query, keys.positions[i])) seen.push_back(i);
    }
    return seen;
  }

  void compare_row(int64_t b, int64_t head, int64_t row, const Keys& keys, const std::vector<size_t>& seen,
                   CallErrors& errors) const {
    const Problem& p = c_.problem;
    std::vector<double> query;
    for (int64_t d = 0; d < p.head_dim; ++d) query.push_back(value_of(c_, {Tensor::query, rank_, b, row, head, d}));
    const double scale = c_.scale != 0 ? c_.scale : 1 / std::sqrt(static_cast<double>(p.head_dim));
    const auto elements = [&](const std::vector<double>& of, int64_t i) {
      return of.data() + seen[static_cast<size_t>(i)] * static_cast<size_t>(p.head_dim);
    };
    const ReferenceRow expected = reference_row(
        query, static_cast<int64_t>(seen.size()), scale, [&](int64_t i) { return elements(keys.keys, i); },
        [&](int64_t i) { return elements(keys.values, i); });
    const std::string where = fmt::format("rank {}, batch {}, head {}, row {}", rank_, b, head, row);
    note(lse().get(b * p.q_heads + head, row), expected.lse, 4e-6 * (4 + expected.most_score), where + ", lse", errors);
    // One rounding to the dtype, and sums in fp32 whose weights are as exact as the scores are.
    const double unit = p.out_dtype == DataType::bf16 ? 0x1p-8 : p.out_dtype == DataType::fp16 ? 0x1p-11 : 0x1p-23;
    for (int64_t d = 0; d < p.head_dim; ++d) {
      const double right = expected.out[static_cast<size_t>(d)];
      const double allowed = unit * std::abs(right) + (4e-6 * (4 + expected.most_score) * expected.most_value) + 6e-8;
      note(out().get(b * own_rows() + row, head * p.head_dim + d), right, allowed,
           fmt::format("{}, element {}", where, d), errors);
    }
  }
  static void note(double seen, double right, double allowed, const std::string& where, CallErrors& errors) {
    const double error = std::isinf(right) ? (seen == right ? 0 : 1e30) : std::abs(seen - right);
    const double share = std::isnan(error) ? 1e30 : error / allowed;
    errors.largest = std::max(errors.largest, std::isnan(error) ? 1e30 : error);
    if (share <= errors.of_allowed) return;
    errors.of_allowed = share;
    errors.worst = fmt::format("{} is {}, should be {}, {} times what its roundings allow", where, seen, right, share);
  }

  TestCall c_;
  int32_t rank_;
  OwnedHeads q_, k_, v_;
  std::vector<OwnedMatrix> results_;
};

inline void run_and_check(const std::vector<int32_t>& layout, const Options& options,
                          const std::vector<TestCall>& calls) {
  run_and_check_calls<Op, CallChecker>(layout, options, calls);
}

}  // namespace tilewire::attention

namespace tilewire {

template <>
struct OpTestTraits<attention::Op> {
  using Checker = attention::CallChecker;

  static attention::TestCall small_call() {
    return {.problem = {.rows = {20, 3, 9, 11},
                        .kv_rows = {20, 3, 9, 11},
                        .batch = 1,
                        .q_heads = 2,
                        .kv_heads = 1,
                        .head_dim = 64}};
  }
  static Checker small(Rank rank) { return {small_call(), rank.value}; }
  static Checker other(Rank rank) {
    attention::TestCall call = small_call();
    call.problem.head_dim = 128;
    return {call, rank.value};
  }
  static constexpr const char *kText = "D = 64", *kOtherText = "D = 128";
  // Two slots for twelve heads: words of free slots go through the rings as well.
  static Checker busy(Rank rank) {
    attention::TestCall call = small_call();
    call.problem.q_heads = call.problem.kv_heads = 12;
    call.plan_json = to_json(attention::PlanChoice{.chunk_rows = 64, .window = 2, .cursors = {}});
    return {call, rank.value};
  }

  static void spoil(attention::Arguments& args) { args.v.rows -= 1; }
  static constexpr const char* kSpoilText = "v does not fit k";
  static void alias_result(attention::Arguments& args) {
    args.make_results = [q = args.q, make = args.make_results](const attention::Problem& p) {
      attention::Arguments::Results results = make(p);
      results.out.data = q.data;
      return results;
    };
  }
  static constexpr const char* kAliasText = "out overlaps q";
  static void exchange(attention::Arguments& args) { args.rows = args.kv_rows = {RowCounts::From::exchange, {}}; }
};

}  // namespace tilewire
