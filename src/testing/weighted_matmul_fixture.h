// For tests of ops that multiply rows by weights: weights, biases and results that own their memory.
#pragma once

#include <cstdint>
#include <vector>

#include "operands/weighted_matmul.h"
#include "testing/op_test_support.h"

namespace tilewire {

struct MatmulTestSize {
  int64_t k = 0;
  int64_t n = 0;
  int64_t out_rows = 0;
  DataType dtype = DataType::bf16;
  DataType out_dtype = DataType::fp32;
  bool is_n_by_k = false;  // stored as [N, K]
};

struct MatmulTestWeights {
  std::vector<MatrixView> b;  // [K, N] each
  std::vector<std::vector<float>> bias;
  std::vector<OwnedMatrix> out;  // poisoned

  // One more weight of value(i, n), with the bias bias_value(n).
  template <class Value, class BiasValue>
  void add(const MatmulTestSize& size, const Value& value, const BiasValue& bias_value) {
    const auto transposed = [&](int64_t n, int64_t i) { return value(i, n); };
    stored_.push_back(size.is_n_by_k ? matrix_of(size.n, size.k, size.dtype, transposed)
                                     : matrix_of(size.k, size.n, size.dtype, value));
    b.push_back(size.is_n_by_k ? stored_.back().transposed() : stored_.back().view());
    bias.emplace_back();
    for (int64_t n = 0; n < size.n; ++n) bias.back().push_back(static_cast<float>(bias_value(n)));
    out.emplace_back(size.out_rows, size.n, size.out_dtype);
  }
  void give(MatmulOperands& operands, bool with_bias) const {
    operands.b = b;
    operands.bias_dtype = DataType::fp32;
    for (const std::vector<float>& values : bias) {
      if (with_bias) operands.bias.push_back(values.data());
    }
  }
  std::vector<MatrixView> outs() const {
    std::vector<MatrixView> views;
    for (const OwnedMatrix& m : out) views.push_back(m.view());
    return views;
  }

 private:
  std::vector<OwnedMatrix> stored_;
};

}  // namespace tilewire
