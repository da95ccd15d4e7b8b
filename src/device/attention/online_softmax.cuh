// The softmax of a row whose scores come a step at a time, for two rows a thread as wgmma leaves them: register i has row
// i / 2 % 2 and column i / 4 * 8 + i % 2 of the thread, whose first column is 2 * (lane % 4).
#pragma once

#include "device/ptx/qualifier.cuh"

namespace tilewire {

TILEWIRE_DEVICE constexpr int32_t row_of_register(int32_t i) { return i / 2 % 2; }
TILEWIRE_DEVICE constexpr int32_t column_of_register(int32_t i) { return i / 4 * 8 + i % 2; }

TILEWIRE_DEVICE float exp2_of(float x) {  // of -infinity: 0
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

template <int32_t kScores>
class OnlineSoftmax {
 public:
  TILEWIRE_DEVICE explicit OnlineSoftmax(float scale) : scale_log2_(scale * kLog2E) {}

  TILEWIRE_DEVICE void begin() {
#pragma unroll
    for (int32_t r = 0; r < 2; ++r) {
      most_[r] = kNoKey;
      sum_[r] = 0;
    }
  }

  // Scores become weights: exp(score - m). Sums so far are to be multiplied by rescale[row], which is 1 for most steps: m
  // follows the greatest score only where that has grown by more than a factor of 2^8 in weights, so that fp32 holds them
  // all the same. False: by 1, in all rows of the warp.
  TILEWIRE_DEVICE bool add(float (&s)[kScores], float (&rescale)[2]) {
    float top[2] = {s[0], s[2]};
#pragma unroll
    for (int32_t i = 0; i < kScores; ++i) top[row_of_register(i)] = fmaxf(top[row_of_register(i)], s[i]);
    float shift[2], part[2] = {0, 0};
    bool has_moved = false;
#pragma unroll
    for (int32_t r = 0; r < 2; ++r) {
      top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffff, top[r], 1));
      top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffff, top[r], 2));
      const float growth = (top[r] - most_[r]) * scale_log2_;
      const bool moves = growth > kGrowth;
      rescale[r] = moves ? exp2_of(-growth) : 1.F;
      if (moves) most_[r] = top[r];
      has_moved |= moves;
      shift[r] = most_[r] * scale_log2_;
    }
#pragma unroll
    for (int32_t i = 0; i < kScores; ++i) {
      const int32_t r = row_of_register(i);
      s[i] = exp2_of(fmaf(s[i], scale_log2_, -shift[r]));
      part[r] += s[i];
    }
#pragma unroll
    for (int32_t r = 0; r < 2; ++r) sum_[r] = fmaf(sum_[r], rescale[r], part[r]);
    return __any_sync(0xffffffff, has_moved) != 0;
  }

  // What sums are to be multiplied by, and the logarithm of the sum of all weights. A row without keys: 0 and -infinity.
  TILEWIRE_DEVICE void finish(float (&inverse)[2], float (&log_sum)[2]) {
#pragma unroll
    for (int32_t r = 0; r < 2; ++r) {
      sum_[r] += __shfl_xor_sync(0xffffffff, sum_[r], 1);
      sum_[r] += __shfl_xor_sync(0xffffffff, sum_[r], 2);
      inverse[r] = sum_[r] == 0 ? 0.F : 1 / sum_[r];
      log_sum[r] = sum_[r] == 0 ? -INFINITY : most_[r] * scale_log2_ * kLn2 + logf(sum_[r]);
    }
  }

  // That is never below 0.
  TILEWIRE_DEVICE float any_sum() const { return sum_[0] + sum_[1]; }

 private:
  static constexpr float kLog2E = 1.44269504F, kLn2 = 0.693147181F;
  static constexpr float kNoKey = -1e30F;  // finite, so that no difference is NaN
  static constexpr float kGrowth = 8;

  float scale_log2_;
  float most_[2] = {kNoKey, kNoKey};
  float sum_[2] = {0, 0};  // of this thread's columns
};

}  // namespace tilewire
