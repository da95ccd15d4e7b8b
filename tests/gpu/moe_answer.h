// What a call of a MoeSize has to give, worked out the obvious way on the host from coded values (coded_values.h).
#pragma once

#include "coded_values.h"
#include "moe_sizes.h"

#include "ops/moe_dispatch/problem.h"
#include "ops/moe_dispatch/reference.h"
#include "ops/moe_dispatch/routing_fixture.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

namespace tilewire {

// The expert of a slot of a rank's tokens, where a kernel writes them; -1 and the same one twice too.
TILEWIRE_HD constexpr int32_t coded_expert(int32_t rank, int64_t entry, int64_t salt, int32_t experts) {
  const int64_t number = rank * 5 + entry * 7 + entry / 11 + salt * 3 + (entry & salt);
  return static_cast<int32_t>(number % (experts + 1)) - 1;
}
// Rows of x among those of all ranks.
constexpr int64_t kTokensOfRank = 100003;

class MoeAnswer {
 public:
  explicit MoeAnswer(const MoeSize& size) : size_(size) {
    for (const int64_t tokens : size.tokens) most_rows_ += tokens * size.top_k;
    if (size.max_tokens > 0) most_rows_ = size.max_tokens;
  }

  int32_t ranks() const { return static_cast<int32_t>(size_.tokens.size()); }
  int32_t experts() const { return static_cast<int32_t>(size_.rank_of_expert.size()); }
  int64_t tokens(int32_t r) const { return size_.tokens[static_cast<size_t>(r)]; }
  int64_t most_rows() const { return most_rows_; }
  moe_dispatch::Problem problem() const {
    moe_dispatch::Problem p{.rank_of_expert = size_.rank_of_expert,
                            .h = size_.h,
                            .top_k = size_.top_k,
                            .dtype = size_.type,
                            .most_rows = most_rows_,
                            .cols = size_.cols,
                            .out_dtype = size_.type,
                            .result_rows = most_rows_};
    p.most_tokens = p.planned_tokens =
        std::max<int64_t>(1, *std::max_element(size_.tokens.begin(), size_.tokens.end()));
    return p;
  }
  std::vector<int32_t> own_experts(int32_t r) const {
    std::vector<int32_t> own;
    for (int32_t e = 0; e < experts(); ++e) {
      if (size_.rank_of_expert[static_cast<size_t>(e)] == r) own.push_back(e);
    }
    return own;
  }

  // A weight as it is stored, and those of a rank behind each other, with poison beside the elements.
  int64_t w_rows() const { return size_.is_b_n_major ? size_.h : size_.cols; }
  int64_t w_cols() const { return size_.is_b_n_major ? size_.cols : size_.h; }
  int64_t w_pitch() const { return padded(w_cols()) + 8; }
  std::vector<uint16_t> stored_weights(int32_t r) const {
    const std::vector<int32_t> own = own_experts(r);
    std::vector<uint16_t> w(own.size() * static_cast<size_t>(w_rows() * w_pitch()), kPoisonBits);
    for (size_t e = 0; e < own.size(); ++e) {
      uint16_t* first = w.data() + static_cast<int64_t>(e) * w_rows() * w_pitch();
      for (int64_t i = 0; i < size_.h; ++i) {
        for (int64_t c = 0; c < size_.cols; ++c) {
          first[size_.is_b_n_major ? i * w_pitch() + c : c * w_pitch() + i] = this->w(own[e], i, c);
        }
      }
    }
    return w;
  }

  // New tokens; and routes as the size says, or as a kernel writes them.
  void draw(int64_t salt, uint64_t seed) {
    set(salt, moe_dispatch::draw_all_routes(size_.skew, size_.tokens, size_.top_k, experts(), seed));
  }
  void code(int64_t salt) {
    moe_dispatch::Routes routes{.top_k = size_.top_k, .ids = {}};
    for (int32_t r = 0; r < ranks(); ++r) {
      auto& ids = routes.ids.emplace_back();
      for (int64_t i = 0; i < tokens(r) * size_.top_k; ++i) ids.push_back(coded_expert(r, i, salt, experts()));
    }
    set(salt, std::move(routes));
  }
  const moe_dispatch::Routes& routes() const { return routes_; }

  uint16_t x(int32_t r, int64_t token, int64_t i) const { return bits(coded_a(kTokensOfRank * r + token, i, salt_)); }
  uint16_t w(int32_t expert, int64_t i, int64_t c) const { return bits(coded_b(expert, 0, i, c)); }

  const std::vector<moe_dispatch::ReferenceRow>& rows(int32_t r) const { return rows_[static_cast<size_t>(r)]; }
  // Whether some rank gets too many rows, so that nobody gets any.
  bool is_overflow() const { return is_overflow_; }
  // [rows, columns] of a rank.
  std::vector<uint16_t> out(int32_t r) {
    make_weights();
    const auto cols = static_cast<size_t>(size_.cols);
    std::vector<uint16_t> y(rows(r).size() * cols);
    constexpr size_t kParts = 8;
    std::vector<std::thread> threads;
    for (size_t part = 0; part < kParts; ++part) {
      threads.emplace_back([&, part] {
        for (size_t row = part; row < rows(r).size(); row += kParts) multiply(rows(r)[row], y.data() + row * cols);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return y;
  }

 private:
  uint16_t bits(double value) const { return narrow_bits_of(value, size_.type); }
  void set(int64_t salt, moe_dispatch::Routes routes) {
    salt_ = salt;
    routes_ = std::move(routes);
    rows_.clear();
    is_overflow_ = false;
    for (int32_t r = 0; r < ranks(); ++r) {
      rows_.push_back(moe_dispatch::reference_rows(routes_.ids, size_.top_k, size_.rank_of_expert, r));
      is_overflow_ = is_overflow_ || static_cast<int64_t>(rows_.back().size()) > most_rows_;
    }
  }
  // [H, I] of each expert, once.
  void make_weights() {
    if (!weights_.empty()) return;
    for (int32_t e = 0; e < experts(); ++e) {
      auto& w = weights_.emplace_back();
      w.reserve(static_cast<size_t>(size_.h * size_.cols));
      for (int64_t i = 0; i < size_.h; ++i) {
        for (int64_t c = 0; c < size_.cols; ++c) w.push_back(static_cast<float>(coded_b(e, 0, i, c)));
      }
    }
  }
  // Small whole numbers: their sums are exact in any order.
  void multiply(const moe_dispatch::ReferenceRow& of, uint16_t* y) const {
    std::vector<float> sums(static_cast<size_t>(size_.cols));
    float* sum = sums.data();
    const int64_t cols = size_.cols;
    const float* w = weights_[static_cast<size_t>(of.expert)].data();
    for (int64_t i = 0; i < size_.h; ++i, w += cols) {
      const float value = coded_a(kTokensOfRank * of.rank + of.token, i, salt_);
      for (int64_t c = 0; c < cols; ++c) sum[c] += value * w[c];
    }
    for (int64_t c = 0; c < cols; ++c) y[c] = bits(sum[c]);
  }

  MoeSize size_;
  int64_t most_rows_ = 0;
  int64_t salt_ = 0;
  moe_dispatch::Routes routes_;
  std::vector<std::vector<moe_dispatch::ReferenceRow>> rows_;
  bool is_overflow_ = false;
  std::vector<std::vector<float>> weights_;
};

}  // namespace tilewire
