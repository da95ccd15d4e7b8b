// One AllGather+GEMM of a rank that is a process of its own, with coded values (coded_values.h). Host code.
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rank_memory.h"

#include "ops/ag_gemm/device_op.h"
#include "ops/ag_gemm/reference.h"

namespace tilewire {

struct RankShape {
  std::string name;
  std::vector<int64_t> rows;  // of each rank
  int64_t k = 0;
  std::vector<int64_t> cols;
  DataType type = DataType::bf16;
  std::optional<DataType> out_type = {};  // none: that of the operands
  bool is_b_n_major = false;
  bool has_bias = false;
  bool wants_gathered = false;
  RowCounts::From rows_from = RowCounts::From::list;

  int64_t total_rows() const { return rows_before(static_cast<int32_t>(rows.size())); }
  int64_t rows_before(int32_t r) const {
    int64_t sum = 0;
    for (int32_t before = 0; before < r; ++before) sum += rows[static_cast<size_t>(before)];
    return sum;
  }
};

class RankCase {
 public:
  using Device = ag_gemm::DeviceOp;

  RankCase(const RankShape& shape, int32_t me)
      : shape_(shape),
        me_(me),
        a_(shape.rows[static_cast<size_t>(me)], shape.k, shape.type),
        gathered_(shape.total_rows(), shape.k, shape.type) {
    for (size_t w = 0; w < shape.cols.size(); ++w) add_weight(w);
    check_cuda(cudaDeviceSynchronize(), "preparing operands");
  }

  // The next input in pinned memory; enqueue_inputs() brings it to the GPU.
  void set_salt(int64_t salt) {
    salt_ = salt;
    a_.set([&](int64_t row, int64_t i) { return a_at(shape_.rows_before(me_) + row, i); });
  }
  void enqueue_inputs(cudaStream_t stream) const { a_.enqueue(stream); }
  void fill_results(cudaStream_t stream, int fill = 0xff) const {
    for (const RankResult& out : out_) out.fill(fill, stream);
    gathered_.fill(fill, stream);
  }

  ag_gemm::Arguments arguments() const {
    ag_gemm::Arguments args;
    args.a = a_.view();
    for (const RankWeight& b : b_) args.b.push_back(b.view());
    for (const DeviceBuffer<float>& bias : bias_) args.bias.push_back(bias.data());
    args.bias_dtype = DataType::fp32;
    args.out_dtype = out_type();
    args.wants_gathered = shape_.wants_gathered;
    args.rows = {shape_.rows_from, shape_.rows_from == RowCounts::From::list ? shape_.rows : std::vector<int64_t>()};
    args.make_results = [this](const ag_gemm::Problem&) {
      ag_gemm::Arguments::Results results;
      for (const RankResult& out : out_) results.out.push_back(out.view());
      results.gathered = gathered_.view();
      return results;
    };
    return args;
  }

  // Wrong elements; the first ones are printed.
  int64_t count_wrong() {
    const std::string rank = "rank " + std::to_string(me_);
    int64_t wrong = 0;
    for (size_t w = 0; w < out_.size(); ++w) {
      std::vector<uint32_t>& right = right_[{w, salt_}];
      if (right.empty()) right = expected(w);
      const int64_t n = shape_.cols[w];
      wrong += out_[w].count_wrong(rank + " out " + std::to_string(w),
                                   [&](int64_t row, int64_t c) { return right[static_cast<size_t>(row * n + c)]; });
    }
    if (!shape_.wants_gathered) return wrong;
    return wrong + gathered_.count_wrong(rank + " gathered",
                                         [&](int64_t row, int64_t i) { return bits_of(a_at(row, i), shape_.type); });
  }
  // Whether all results are NaN that need what rank `r` has.
  bool is_nan_without(int32_t r) const {
    return out_[0].is_nan(shape_.rows_before(r), shape_.rows[static_cast<size_t>(r)]);
  }

 private:
  double a_at(int64_t row, int64_t i) const { return coded_a(row, i, salt_); }
  double b_at(size_t w, int64_t i, int64_t c) const { return coded_b(me_, w, i, c); }
  double bias_at(size_t w, int64_t c) const { return coded_bias(me_, w, c); }
  DataType out_type() const { return shape_.out_type.value_or(shape_.type); }

  std::vector<uint32_t> expected(size_t w) const {
    const int64_t n = shape_.cols[w], rows = shape_.total_rows();
    std::vector<double> a, b, bias;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < shape_.k; ++i) a.push_back(a_at(row, i));
    }
    for (int64_t i = 0; i < shape_.k; ++i) {
      for (int64_t c = 0; c < n; ++c) b.push_back(b_at(w, i, c));
    }
    for (int64_t c = 0; shape_.has_bias && c < n; ++c) bias.push_back(bias_at(w, c));
    const std::vector<double> sums = ag_gemm::reference({rows, shape_.k, n}, a, b, bias);
    std::vector<uint32_t> y;
    y.reserve(sums.size());
    for (const double sum : sums) y.push_back(bits_of(sum, out_type()));
    return y;
  }

  void add_weight(size_t w) {
    const int64_t n = shape_.cols[w];
    b_.emplace_back(shape_.k, n, shape_.type, shape_.is_b_n_major, [&](int64_t i, int64_t c) { return b_at(w, i, c); });
    out_.emplace_back(shape_.total_rows(), n, out_type());
    if (!shape_.has_bias) return;
    std::vector<float> bias;
    for (int64_t c = 0; c < n; ++c) bias.push_back(static_cast<float>(bias_at(w, c)));
    upload(bias_.emplace_back(make_poisoned<float>(n)), bias);
  }

  RankShape shape_;
  int32_t me_;
  int64_t salt_ = 0;
  RankInput a_;
  RankResult gathered_;
  std::vector<RankWeight> b_;
  std::vector<RankResult> out_;
  std::vector<DeviceBuffer<float>> bias_;
  std::map<std::pair<size_t, int64_t>, std::vector<uint32_t>> right_;  // results, by weight and salt
};

}  // namespace tilewire
