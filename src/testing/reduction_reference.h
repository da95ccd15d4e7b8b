// The obvious sum of all ranks' products: slow, trusted, and sharing no code with the fast one but the roundings to a
// dtype. For tests of the ops that make it.
//
// It rounds where these say that they round, and nowhere else:
//   each rank's partial sum      to the wire's partial dtype
//   each node's sum of those     to the wire's node-sum dtype, where there are several nodes
//   the result                   to its dtype
// and adds in fp32: partial sums of a node by local rank, node sums by node, then the bias, then the residual.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reduction/wire_types.h"
#include "testing/test_support.h"

namespace tilewire {

using Values = std::vector<double>;  // row-major

// a is [rows, k], b is [k, n]. Accumulated in double and rounded to fp32 once.
inline Values partial_product(int64_t rows, int64_t k, int64_t n, const Values& a, const Values& b) {
  Values y(static_cast<size_t>(rows * n), 0);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < n; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < k; ++i) {
        sum += a[static_cast<size_t>(r * k + i)] * b[static_cast<size_t>(i * n + c)];
      }
      y[static_cast<size_t>(r * n + c)] = static_cast<float>(sum);
    }
  }
  return y;
}

// One element of the result from the partial sums of all ranks, by rank; ranks of a node follow each other.
inline double reduced(const std::vector<int32_t>& ranks_per_node, const std::vector<double>& partials,
                      const WireTypes& wire) {
  float sum = 0;
  size_t rank = 0;
  for (size_t n = 0; n < ranks_per_node.size(); ++n) {
    float node = rounded(partials[rank++], wire.partial);
    for (int32_t l = 1; l < ranks_per_node[n]; ++l) node += rounded(partials[rank++], wire.partial);
    if (ranks_per_node.size() > 1) node = rounded(node, wire.node_sum);
    sum = n == 0 ? node : sum + node;
  }
  return sum;
}

}  // namespace tilewire
