// One ring attention of a rank that is a process of its own, with values coded by place; each element is judged by what its
// roundings allow. Host code.
#pragma once

#include <cuda_runtime_api.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rank_memory.h"

#include "ops/attention/device_op.h"

namespace tilewire {

struct AttentionRankShape {
  std::string name;
  std::vector<int64_t> rows;       // of q, of each rank
  std::vector<int64_t> kv_rows{};  // of k and v; none: as q
  int64_t batch = 1, q_heads = 4, kv_heads = 2, head_dim = 128;
  DataType type = DataType::bf16;
  bool is_causal = false;
  attention::Placement placement = attention::Placement::contiguous;  // given: every rank has every so many rows
  std::vector<int64_t> documents{};
  bool is_bhsd = false;  // memory laid out as [batch, heads, rows, dim]
  RowCounts::From rows_from = RowCounts::From::list;

  const std::vector<int64_t>& keys() const { return kv_rows.empty() ? rows : kv_rows; }
};

// A tensor of heads that changes in place, and what it holds.
class RankHeads {
 public:
  RankHeads(const AttentionRankShape& s, int64_t rows, int64_t heads)
      : batch_(s.batch),
        rows_(rows),
        heads_(heads),
        dim_(s.head_dim),
        is_bhsd_(s.is_bhsd),
        memory_(is_bhsd_ ? batch_ * heads * rows : batch_ * rows, is_bhsd_ ? dim_ : heads * dim_, s.type) {}

  // value(batch, row, head, column)
  template <class Value>
  void set(const Value& value) {
    memory_.set([&](int64_t line, int64_t i) {
      if (is_bhsd_) return value(line / rows_ / heads_, line % rows_, line / rows_ % heads_, i);
      return value(line / rows_, line % rows_, i / dim_, i % dim_);
    });
  }
  void enqueue(cudaStream_t stream) const { memory_.enqueue(stream); }
  HeadsView view() const {
    const MatrixView m = memory_.view();
    return {.data = m.data,
            .batch = batch_,
            .rows = rows_,
            .heads = heads_,
            .dim = dim_,
            .batch_stride = (is_bhsd_ ? heads_ * rows_ : rows_) * m.row_stride,
            .row_stride = m.row_stride,
            .head_stride = is_bhsd_ ? rows_ * m.row_stride : dim_,
            .dim_stride = 1,
            .dtype = m.dtype};
  }

 private:
  int64_t batch_, rows_, heads_, dim_;
  bool is_bhsd_;
  RankInput memory_;
};

class AttentionRankCase {
 public:
  using Device = attention::DeviceOp;

  AttentionRankCase(const AttentionRankShape& shape, int32_t me)
      : s_(shape),
        me_(me),
        problem_(problem_of(shape)),
        q_(shape, own_rows(), shape.q_heads),
        k_(shape, shape.keys()[static_cast<size_t>(me)], shape.kv_heads),
        v_(shape, shape.keys()[static_cast<size_t>(me)], shape.kv_heads),
        out_(shape.batch * own_rows(), shape.q_heads * shape.head_dim, shape.type),
        lse_(shape.batch * shape.q_heads, own_rows(), DataType::fp32) {
    check_cuda(cudaDeviceSynchronize(), "preparing operands");
  }

  // The next inputs in pinned memory; enqueue_inputs() brings them to the GPU.
  void set_salt(int64_t salt) {
    salt_ = salt;
    q_.set([&](int64_t b, int64_t r, int64_t h, int64_t d) { return value_of({0, me_, b, r, h, d}); });
    k_.set([&](int64_t b, int64_t r, int64_t h, int64_t d) { return value_of({1, me_, b, r, h, d}); });
    v_.set([&](int64_t b, int64_t r, int64_t h, int64_t d) { return value_of({2, me_, b, r, h, d}); });
  }
  void enqueue_inputs(cudaStream_t stream) const {
    for (const RankHeads* heads : {&q_, &k_, &v_}) heads->enqueue(stream);
  }
  void fill_results(cudaStream_t stream, int fill = 0xff) const {
    out_.fill(fill, stream);
    lse_.fill(fill, stream);
  }

  attention::Arguments arguments() const {
    attention::Arguments args;
    args.q = q_.view();
    args.k = k_.view();
    args.v = v_.view();
    args.is_causal = s_.is_causal;
    args.placement = s_.placement;
    if (s_.placement == attention::Placement::given) {
      args.positions = attention::expanded(problem_.given[static_cast<size_t>(me_)]);
      args.kv_positions = attention::expanded(problem_.given_kv[static_cast<size_t>(me_)]);
    }
    args.documents = args.kv_documents = s_.documents;
    args.rows = counts(s_.rows);
    args.kv_rows = counts(s_.keys());
    args.out_dtype = s_.type;
    args.make_results = [this](const attention::Problem&) {
      return attention::Arguments::Results{out_.view(), lse_.view()};
    };
    return args;
  }

  // Wrong elements; the first ones are printed.
  int64_t count_wrong() {
    Right& right = right_[salt_];
    if (right.out.empty()) right = expected();
    const std::string rank = s_.name + ": rank " + std::to_string(me_);
    const int64_t cols = s_.q_heads * s_.head_dim, rows = own_rows();
    const auto judge = [](const std::string& name, const RankResult& result, int64_t width,
                          const std::vector<Bounds>& bounds) {
      return result.count_outside(name,
                                  [&](int64_t row, int64_t c) { return bounds[static_cast<size_t>(row * width + c)]; });
    };
    return judge(rank + " out", out_, cols, right.out) + judge(rank + " lse", lse_, rows, right.lse);
  }
  // Whether all results are NaN, as rows that see all keys lack those of a rank.
  bool is_nan_without(int32_t) const {
    return out_.is_nan(0, s_.batch * own_rows()) && lse_.is_nan(0, s_.batch * s_.q_heads);
  }

 private:
  struct Right {
    std::vector<Bounds> out, lse;
  };
  struct Element {
    int tensor;
    int32_t rank;
    int64_t batch, row, head, column;
  };

  // Whole numbers of 64ths from -2 to 2, which both types of operands hold.
  double value_of(const Element& e) const {
    uint64_t h = static_cast<uint64_t>(salt_) * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(e.tensor);
    for (const int64_t part : {int64_t{e.rank}, e.batch, e.row, e.head, e.column}) {
      h = (h ^ static_cast<uint64_t>(part + 1)) * 0xff51afd7ed558ccdu;
      h ^= h >> 32;
    }
    return static_cast<double>(static_cast<int64_t>(h >> 40) % 255 - 127) / 64;
  }

  static std::vector<attention::Positions> striped(const std::vector<int64_t>& rows) {
    std::vector<std::vector<int64_t>> places(rows.size());
    int64_t left = 0, next = 0;
    for (const int64_t count : rows) left += count;
    for (size_t r = 0; left > 0; r = (r + 1) % rows.size()) {
      if (static_cast<int64_t>(places[r].size()) == rows[r]) continue;
      places[r].push_back(next++);
      --left;
    }
    std::vector<attention::Positions> runs;
    for (const auto& of_rank : places) runs.push_back(attention::runs_of(of_rank));
    return runs;
  }
  static attention::Problem problem_of(const AttentionRankShape& s) {
    attention::Problem p{.rows = s.rows,
                         .kv_rows = s.keys(),
                         .batch = s.batch,
                         .q_heads = s.q_heads,
                         .kv_heads = s.kv_heads,
                         .head_dim = s.head_dim,
                         .dtype = s.type,
                         .is_causal = s.is_causal,
                         .placement = s.placement,
                         .documents = s.documents,
                         .kv_documents = s.documents,
                         .out_dtype = s.type};
    if (s.placement == attention::Placement::given) {
      p.given = striped(s.rows);
      p.given_kv = striped(s.keys());
    }
    return p;
  }

  int64_t own_rows() const { return s_.rows[static_cast<size_t>(me_)]; }
  RowCounts counts(const std::vector<int64_t>& rows) const {
    return {s_.rows_from, s_.rows_from == RowCounts::From::list ? rows : std::vector<int64_t>()};
  }

  // A key or value of all ranks, by batch entry, row of all and head.
  std::vector<double> whole(int tensor) const {
    std::vector<double> all;
    for (int64_t b = 0; b < s_.batch; ++b) {
      for (int32_t r = 0; r < static_cast<int32_t>(s_.rows.size()); ++r) {
        for (int64_t row = 0; row < s_.keys()[static_cast<size_t>(r)]; ++row) {
          for (int64_t i = 0; i < s_.kv_heads * s_.head_dim; ++i) {
            all.push_back(value_of({tensor, r, b, row, i / s_.head_dim, i % s_.head_dim}));
          }
        }
      }
    }
    return all;
  }

  Right expected() const {
    const int64_t rows = own_rows(), dim = s_.head_dim;
    Right right;
    right.out.resize(static_cast<size_t>(s_.batch * rows * s_.q_heads * dim));
    right.lse.resize(static_cast<size_t>(s_.batch * s_.q_heads * rows));
    std::vector<int64_t> places;
    for (const attention::Positions& of_rank : problem_.kv_positions()) {
      for (const int64_t place : attention::expanded(of_rank)) places.push_back(place);
    }
    const std::vector<int64_t> own = attention::expanded(problem_.positions()[static_cast<size_t>(me_)]);
    const attention::MaskRule mask = problem_.mask();
    const std::vector<double> k = whole(1), v = whole(2);
    const auto all = static_cast<int64_t>(places.size());
    for (int64_t b = 0; b < s_.batch; ++b) {
      for (int64_t row = 0; row < rows; ++row) {
        const attention::KeySpan span = mask.span_of(own[static_cast<size_t>(row)]);
        for (int64_t h = 0; h < s_.q_heads; ++h) {
          const int64_t kv_head = h / (s_.q_heads / s_.kv_heads);
          const auto line = [&](const std::vector<double>& of, int64_t i) {
            return &of[static_cast<size_t>(((b * all + i) * s_.kv_heads + kv_head) * dim)];
          };
          std::vector<double> query(static_cast<size_t>(dim));
          for (int64_t d = 0; d < dim; ++d) query[static_cast<size_t>(d)] = value_of({0, me_, b, row, h, d});
          add_row(
              query, all, [&](int64_t i) { return span.holds(places[static_cast<size_t>(i)]); },
              [&](int64_t i) { return line(k, i); }, [&](int64_t i) { return line(v, i); },
              &right.out[static_cast<size_t>(((b * rows + row) * s_.q_heads + h) * dim)],
              right.lse[static_cast<size_t>((b * s_.q_heads + h) * rows + row)]);
        }
      }
    }
    return right;
  }

  // Weights are rounded to the type of the values, so errors go by the sizes of what is added.
  template <class Sees, class Key, class Value>
  void add_row(const std::vector<double>& query, int64_t all, const Sees& sees, const Key& key, const Value& value,
               Bounds* out, Bounds& lse) const {
    const auto dim = static_cast<int64_t>(query.size());
    const double scale = 1 / std::sqrt(static_cast<double>(dim));
    std::vector<std::pair<int64_t, double>> scores;
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < all; ++i) {
      if (!sees(i)) continue;
      double score = 0;
      for (int64_t d = 0; d < dim; ++d) score += query[static_cast<size_t>(d)] * key(i)[d];
      scores.emplace_back(i, score * scale);
      most = std::max(most, score * scale);
    }
    std::vector<double> sums(query.size()), sizes(query.size());
    for (const auto& [i, score] : scores) {
      const double weight = std::exp(score - most);
      sum += weight;
      for (int64_t d = 0; d < dim; ++d) {
        sums[static_cast<size_t>(d)] += weight * value(i)[d];
        sizes[static_cast<size_t>(d)] += weight * std::abs(value(i)[d]);
      }
    }
    const double rounding = s_.type == DataType::bf16 ? 1.0 / 256 : 1.0 / 2048;
    for (int64_t d = 0; d < dim; ++d) {
      const double want = sum > 0 ? sums[static_cast<size_t>(d)] / sum : 0;
      const double size = sum > 0 ? sizes[static_cast<size_t>(d)] / sum : 0;
      out[d] = {want, rounding * 1.05 * (std::abs(want) + size) + (sum > 0 ? 1e-6 : 0)};
    }
    lse = {sum > 0 ? most + std::log(sum) : -INFINITY, 0};
    if (sum > 0) lse.tolerance = 2e-5 + std::abs(lse.want) * 2e-6;
  }

  AttentionRankShape s_;
  int32_t me_;
  int64_t salt_ = 0;
  attention::Problem problem_;
  RankHeads q_, k_, v_;
  RankResult out_, lse_;
  std::map<int64_t, Right> right_;  // by salt
};

}  // namespace tilewire
