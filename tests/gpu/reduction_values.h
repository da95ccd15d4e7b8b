// Calls of ops that sum products over ranks, with coded values (coded_values.h): their sizes, and what they have to give.
// Products are exact, so that the roundings that the reference makes give every bit of a result. Host code.
#pragma once

#include "coded_values.h"

#include "testing/reduction_reference.h"
#include "transport/emulated/emulated_options.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace tilewire {

struct ReductionSize {
  std::string name;
  std::vector<int64_t> rows;  // of the result on each rank, or of the whole one in so many parts
  std::vector<int64_t> k;     // of each rank; one number: of all
  int64_t n = 0;
  DataType type = DataType::bf16;
  DataType wire = DataType::bf16;
  DataType out = DataType::bf16;
  bool is_b_n_major = false;
  bool has_bias = false;
  bool has_residual = false;
  int64_t out_padding = 8;                 // elements by which rows of the result are longer than 16 bytes ask for
  int64_t chunk_rows = 0, chunk_cols = 0;  // 0: the plan chooses
  int64_t window = -1;                     // below 0: likewise
  int32_t ctas = 24;                       // of each rank
  int64_t tile_rows = 0, tile_cols = 0;
  int32_t reduce_workers = 0;
  bool is_fused = true;
  bool is_one_shot = false;
  std::vector<int32_t> widths = {};  // ranks of each node; empty: all on one
  Personality personality = Personality::rc;
};

inline int64_t rows_before(const ReductionSize& size, int32_t r) {
  int64_t begin = 0;
  for (int32_t before = 0; before < r; ++before) begin += size.rows[static_cast<size_t>(before)];
  return begin;
}
inline int64_t depth_of(const ReductionSize& size, int32_t r) {
  return size.k.size() == 1 ? size.k[0] : size.k[static_cast<size_t>(r)];
}

// What rank `rank` has as a: as if its rows lay behind those of the others.
constexpr int64_t kRowsOfRank = 1000;
constexpr float coded_factor(int32_t rank, int64_t row, int64_t i, int64_t salt) {
  return coded_a(kRowsOfRank * rank + row, i, salt);
}
inline float coded_residual(int64_t row, int64_t c) { return static_cast<float>((row * 3 + c * 5) % 17 - 8) / 4; }

inline std::vector<int32_t> widths_of(const ReductionSize& size) {
  if (!size.widths.empty()) return size.widths;
  return {static_cast<int32_t>(size.rows.size())};
}

// The sums of all ranks' products, made once for all ranks and each salt.
class ReductionReference {
 public:
  explicit ReductionReference(const ReductionSize& size) : size_(size), ranks_(static_cast<int32_t>(size.rows.size())) {
    for (int32_t s = 0; s < ranks_; ++s) {
      std::vector<float>& b = b_.emplace_back();
      b.reserve(static_cast<size_t>(depth_of(size, s) * size.n));
      for (int64_t i = 0; i < depth_of(size, s); ++i) {
        for (int64_t c = 0; c < size.n; ++c) b.push_back(static_cast<float>(coded_b(s, 0, i, c)));
      }
    }
  }

  // Rows [first, first + rows) of the result, in the bits of its type, with the bias of rank `bias_of`; the residual's
  // rows begin where they do.
  std::vector<uint32_t> expected(int64_t salt, int64_t first, int64_t rows, int32_t bias_of) {
    make_sums(salt);
    std::vector<uint32_t> y;
    y.reserve(static_cast<size_t>(rows * size_.n));
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t c = 0; c < size_.n; ++c) {
        float value = sums_[static_cast<size_t>((first + row) * size_.n + c)];
        if (size_.has_bias) value += static_cast<float>(coded_bias(bias_of, 0, c));
        if (size_.has_residual) value += coded_residual(row, c);
        y.push_back(bits_of(value, size_.out));
      }
    }
    return y;
  }

 private:
  void make_sums(int64_t salt) {
    const int64_t rows = rows_before(size_, ranks_);
    if (salt == salt_) return;
    salt_ = salt;
    sums_.resize(static_cast<size_t>(rows * size_.n));
    constexpr int64_t kParts = 16;
    std::vector<std::thread> threads;
    for (int64_t part = 0; part < kParts; ++part) {
      threads.emplace_back([this, begin = rows * part / kParts, end = rows * (part + 1) / kParts] {
        for (int64_t row = begin; row < end; ++row) make_row(row);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  void make_row(int64_t row) {
    std::vector<std::vector<float>> products;
    for (int32_t s = 0; s < ranks_; ++s) {
      std::vector<float>& sum = products.emplace_back(static_cast<size_t>(size_.n));
      const float* b = b_[static_cast<size_t>(s)].data();
      for (int64_t i = 0; i < depth_of(size_, s); ++i, b += size_.n) {
        const float a = coded_factor(s, row, i, salt_);
        for (int64_t c = 0; c < size_.n; ++c) sum[static_cast<size_t>(c)] += a * b[c];
      }
    }
    std::vector<double> partials(static_cast<size_t>(ranks_));
    for (int64_t c = 0; c < size_.n; ++c) {
      for (size_t s = 0; s < products.size(); ++s) partials[s] = products[s][static_cast<size_t>(c)];
      sums_[static_cast<size_t>(row * size_.n + c)] =
          static_cast<float>(reduced(widths_of(size_), partials, wire_types(size_.wire)));
    }
  }

  ReductionSize size_;
  int32_t ranks_;
  std::vector<std::vector<float>> b_;  // of each rank
  int64_t salt_ = -1;
  std::vector<float> sums_;
};

}  // namespace tilewire
