// The obvious AllGather+GEMM: slow, trusted, and sharing no code with the fast one. For tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tilewire::ag_gemm {

struct ReferenceSize {
  int64_t rows = 0;  // of all ranks together
  int64_t k = 0;
  int64_t n = 0;
};

// a is [rows, k]: the shards of all ranks behind each other; b is [k, n]; bias is empty or [n]; all row-major. Returns
// [rows, n], accumulated in double; rounding to the result's dtype is the caller's.
inline std::vector<double> reference(const ReferenceSize& size, const std::vector<double>& a,
                                     const std::vector<double>& b, const std::vector<double>& bias) {
  std::vector<double> y(static_cast<size_t>(size.rows * size.n), 0);
  for (int64_t r = 0; r < size.rows; ++r) {
    double* row = y.data() + r * size.n;
    for (int64_t c = 0; c < size.n && !bias.empty(); ++c) row[c] = bias[c];
    for (int64_t i = 0; i < size.k; ++i) {  // row by row of b, which lie one behind the other
      for (int64_t c = 0; c < size.n; ++c) row[c] += a[r * size.k + i] * b[i * size.n + c];
    }
  }
  return y;
}

}  // namespace tilewire::ag_gemm
