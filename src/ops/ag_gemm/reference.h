// The obvious AllGather+GEMM: slow, trusted, and sharing no code with the fast one. For tests.
#pragma once

#include <cstdint>
#include <vector>

namespace tilewire::ag_gemm {

// shards[r] is [rows_r, k], b is [k, n], bias is empty or [n]; all row-major. Returns [sum rows_r, n], accumulated in
// double; rounding to the result's dtype is the caller's.
inline std::vector<double> reference(const std::vector<std::vector<double>>& shards, const std::vector<double>& b,
                                     const std::vector<double>& bias, int64_t k, int64_t n) {
  std::vector<double> y;
  for (const std::vector<double>& shard : shards) {
    const int64_t rows = k == 0 ? 0 : static_cast<int64_t>(shard.size()) / k;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < n; ++c) {
        double sum = bias.empty() ? 0 : bias[c];
        for (int64_t i = 0; i < k; ++i) sum += shard[r * k + i] * b[i * n + c];
        y.push_back(sum);
      }
    }
  }
  return y;
}

}  // namespace tilewire::ag_gemm
