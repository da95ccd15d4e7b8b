#include "ops/attention/host_attention.h"

#include <algorithm>
#include <cmath>

namespace tilewire::attention {
namespace {

constexpr float kNoScore = -std::numeric_limits<float>::infinity();

bool is_finite(const void* values, int64_t count, DataType dtype) {
  const auto* bits = static_cast<const uint16_t*>(values);
  const uint16_t exponent = dtype == DataType::bf16 ? 0x7f80 : 0x7c00;
  return std::none_of(bits, bits + count, [&](uint16_t b) { return (b & exponent) == exponent; });
}

SpanBounds bounds_of(std::span<const KeySpan> spans) {
  SpanBounds bounds;
  for (const KeySpan s : spans) bounds.add(s);
  return bounds;
}

KeyBounds bounds_of(std::span<const int64_t> positions) {
  KeyBounds bounds;
  for (const int64_t p : positions) bounds.add(p);
  return bounds;
}

}  // namespace

void HostAttention::add(HostSums& sums, const HostKeys& block, std::span<const KeySpan> spans, float scale) {
  const auto keys = static_cast<int64_t>(block.positions.size());
  const SpanBounds rows = bounds_of(spans);
  const KeyBounds bounds = bounds_of(block.positions);
  if (!may_meet(rows, bounds)) return;
  const bool is_masked = !all_meet(rows, bounds);
  scores_.resize(static_cast<size_t>(sums.rows * keys));
  const RowSegment queries{0, queries_.data(), sums.head_dim * int64_t{sizeof(float)}};
  host_gemm_tile({.rows = sums.rows,
                  .cols = keys,
                  .k = sums.head_dim,
                  .a = {&queries, 1},
                  .a_type = DataType::fp32,
                  .b = block.keys,
                  .b_stride_k = 1,
                  .b_stride_n = sums.head_dim,
                  .b_type = block.dtype,
                  .out = scores_.data(),
                  .out_pitch_bytes = keys * int64_t{sizeof(float)},
                  .out_type = DataType::fp32},
                 gemm_);
  for (int64_t r = 0; r < sums.rows; ++r) {
    float* row = scores_.data() + r * keys;
    for (int64_t k = 0; k < keys; ++k) row[k] *= scale;
    // Not by adding: what is not seen may be a NaN.
    for (int64_t k = 0; is_masked && k < keys; ++k) {
      if (!spans[static_cast<size_t>(r)].holds(block.positions[static_cast<size_t>(k)])) row[k] = kNoScore;
    }
    shift(sums, r, keys);
  }
  add_values(sums, block, spans, is_masked);
}

void HostAttention::shift(HostSums& sums, int64_t row, int64_t keys) {
  float* scores = scores_.data() + row * keys;
  float most = sums.most[row];
  bool has_nan = false;
  for (int64_t k = 0; k < keys; ++k) {
    most = std::max(most, scores[k]);
    has_nan = has_nan || std::isnan(scores[k]);
  }
  if (has_nan) most = std::numeric_limits<float>::quiet_NaN();
  // (-inf) - (-inf), of a row without a key so far, would be a NaN.
  float sum = 0;
  for (int64_t k = 0; k < keys; ++k) {
    scores[k] = scores[k] == kNoScore ? 0.0F : std::exp(scores[k] - most);
    sum += scores[k];
  }
  const float factor = sums.most[row] == kNoScore ? 0.0F : std::exp(sums.most[row] - most);
  sums.sum[row] = sums.sum[row] * factor + sum;
  sums.most[row] = most;
  // Nothing to shift: a row that does not see the block must keep its bits.
  if (factor == 1.0F) return;
  float* out = sums.out + row * sums.head_dim;
  for (int64_t d = 0; d < sums.head_dim; ++d) out[d] *= factor;
}

void HostAttention::add_values(HostSums& sums, const HostKeys& block, std::span<const KeySpan> spans, bool is_masked) {
  const auto keys = static_cast<int64_t>(block.positions.size());
  products_.resize(static_cast<size_t>(sums.rows * sums.head_dim));
  const RowSegment weights{0, scores_.data(), keys * int64_t{sizeof(float)}};
  host_gemm_tile({.rows = sums.rows,
                  .cols = sums.head_dim,
                  .k = keys,
                  .a = {&weights, 1},
                  .a_type = DataType::fp32,
                  .b = block.values,
                  .b_stride_k = sums.head_dim,
                  .b_stride_n = 1,
                  .b_type = block.dtype,
                  .out = products_.data(),
                  .out_pitch_bytes = sums.head_dim * int64_t{sizeof(float)},
                  .out_type = DataType::fp32},
                 gemm_);
  if (is_masked && !is_finite(block.values, keys * sums.head_dim, block.dtype)) {
    // 0 times infinity: of such values only those that a row sees.
    std::vector<float> values(static_cast<size_t>(keys * sums.head_dim));
    to_fp32({block.values, block.dtype}, keys * sums.head_dim, values.data());
    for (int64_t r = 0; r < sums.rows; ++r) {
      float* product = products_.data() + r * sums.head_dim;
      std::fill_n(product, sums.head_dim, 0.0F);
      for (int64_t k = 0; k < keys; ++k) {
        if (!spans[static_cast<size_t>(r)].holds(block.positions[static_cast<size_t>(k)])) continue;
        const float weight = scores_[static_cast<size_t>(r * keys + k)];
        for (int64_t d = 0; d < sums.head_dim; ++d)
          product[d] += weight * values[static_cast<size_t>(k * sums.head_dim + d)];
      }
    }
  }
  for (size_t i = 0; i < products_.size(); ++i) sums.out[i] += products_[i];
}

void HostSums::begin() {
  std::fill_n(out, rows * head_dim, 0.0F);
  std::fill_n(most, rows, kNoScore);
  std::fill_n(sum, rows, 0.0F);
}

float HostSums::finish_row(int64_t row, std::vector<float>& scratch, Elements out_row) const {
  const bool has_none = most[row] == kNoScore;
  scratch.resize(static_cast<size_t>(head_dim));
  for (int64_t d = 0; d < head_dim; ++d) {
    scratch[static_cast<size_t>(d)] = has_none ? 0.0F : out[row * head_dim + d] / sum[row];
  }
  from_fp32(scratch.data(), head_dim, out_row);
  return has_none ? kNoScore : most[row] + std::log(sum[row]);
}

}  // namespace tilewire::attention
