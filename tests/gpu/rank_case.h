// One AllGather+GEMM of a rank that is a process of its own, with coded values (coded_values.h). Host code.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "coded_values.h"
#include "device_buffer.cuh"
#include "pinned.cuh"
#include "result_buffer.cuh"

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

  int64_t total_rows() const {
    int64_t sum = 0;
    for (const int64_t r : rows) sum += r;
    return sum;
  }
};

class RankCase {
 public:
  using Device = ag_gemm::DeviceOp;

  RankCase(const RankShape& shape, int32_t me)
      : shape_(shape),
        me_(me),
        own_rows_(shape.rows[static_cast<size_t>(me)]),
        a_(make_poisoned<uint16_t>(own_rows_ * padded(shape.k))),
        pinned_a_(static_cast<size_t>(a_.count()) * sizeof(uint16_t)),
        gathered_(shape.total_rows(), padded(shape.k), shape.type) {
    for (size_t w = 0; w < shape.cols.size(); ++w) add_weight(w);
    check_cuda(cudaDeviceSynchronize(), "preparing operands");
  }

  // The next input in pinned memory; enqueue_inputs() brings it to the GPU.
  void set_salt(int64_t salt) {
    salt_ = salt;
    const int64_t pitch = padded(shape_.k), first = first_row();
    for (int64_t row = 0; row < own_rows_; ++row) {
      for (int64_t i = 0; i < pitch; ++i) {
        pinned_a()[row * pitch + i] = i < shape_.k ? bits(a_at(first + row, i)) : kPoisonBits;
      }
    }
  }
  void enqueue_inputs(cudaStream_t stream) const {
    check_cuda(cudaMemcpyAsync(a_.data(), pinned_a(), bytes_of(a_), cudaMemcpyHostToDevice, stream), "copying inputs");
  }
  void fill_results(cudaStream_t stream, int fill = 0xff) const {
    const auto poison = [&](const ResultBuffer& result) {
      check_cuda(cudaMemsetAsync(result.data(), fill, result.bytes(), stream), "poisoning results");
    };
    for (const ResultBuffer& out : out_) poison(out);
    poison(gathered_);
  }

  ag_gemm::Arguments arguments() const {
    ag_gemm::Arguments args;
    args.a = {a_.data(), own_rows_, shape_.k, padded(shape_.k), 1, shape_.type};
    args.b = b_views_;
    args.bias = bias_views_;
    args.bias_dtype = DataType::fp32;
    args.out_dtype = out_type();
    args.wants_gathered = shape_.wants_gathered;
    args.rows = {shape_.rows_from, shape_.rows_from == RowCounts::From::list ? shape_.rows : std::vector<int64_t>()};
    const MatrixView gathered{gathered_.data(), shape_.total_rows(), shape_.k, gathered_.pitch(), 1, shape_.type};
    args.make_results = [views = out_views_, gathered](const ag_gemm::Problem&) {
      return ag_gemm::Arguments::Results{views, gathered};
    };
    return args;
  }

  // Wrong elements; the first ones are printed.
  int64_t count_wrong() const {
    int64_t wrong = 0;
    for (size_t w = 0; w < out_.size(); ++w) {
      const std::vector<uint32_t> right = expected(w);
      const int64_t n = shape_.cols[w];
      wrong += count_wrong_in(out_[w], "out " + std::to_string(w), n,
                              [&](int64_t row, int64_t c) { return right[static_cast<size_t>(row * n + c)]; });
    }
    if (!shape_.wants_gathered) return wrong;
    return wrong + count_wrong_in(gathered_, "gathered", shape_.k,
                                  [&](int64_t row, int64_t i) { return uint32_t{bits(a_at(row, i))}; });
  }
  // Rows of rank `r` whose results are all NaN.
  bool is_nan_in_rows_of(int32_t r) const {
    int64_t begin = 0;
    for (int32_t before = 0; before < r; ++before) begin += shape_.rows[static_cast<size_t>(before)];
    const std::vector<uint32_t> seen = out_[0].to_host();
    for (int64_t row = begin; row < begin + shape_.rows[static_cast<size_t>(r)]; ++row) {
      for (int64_t c = 0; c < shape_.cols[0]; ++c) {
        if (seen[static_cast<size_t>(row * out_[0].pitch() + c)] != poison_bits(out_type())) return false;
      }
    }
    return true;
  }

 private:
  template <class Right>
  int64_t count_wrong_in(const ResultBuffer& result, const std::string& name, int64_t cols, const Right& right) const {
    const std::vector<uint32_t> seen = result.to_host();
    int64_t wrong = 0;
    for (int64_t row = 0; row < shape_.total_rows(); ++row) {
      for (int64_t c = 0; c < cols; ++c) {
        const uint32_t got = seen[static_cast<size_t>(row * result.pitch() + c)], want = right(row, c);
        if (got != want && wrong++ < 3) {
          std::printf("  rank %d %s [%lld, %lld] is %04x, not %04x\n", me_, name.c_str(), static_cast<long long>(row),
                      static_cast<long long>(c), got, want);
        }
      }
    }
    return wrong;
  }
  int64_t first_row() const {
    int64_t first = 0;
    for (int32_t r = 0; r < me_; ++r) first += shape_.rows[static_cast<size_t>(r)];
    return first;
  }
  double a_at(int64_t row, int64_t i) const { return coded_a(row, i, salt_); }
  double b_at(size_t w, int64_t i, int64_t c) const { return coded_b(me_, w, i, c); }
  double bias_at(size_t w, int64_t c) const { return coded_bias(me_, w, c); }
  DataType out_type() const { return shape_.out_type.value_or(shape_.type); }
  uint16_t bits(double value) const { return narrow_bits_of(value, shape_.type); }

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
    const int64_t n = shape_.cols[w], k = shape_.k;
    const int64_t pitch = padded(shape_.is_b_n_major ? n : k), rows = shape_.is_b_n_major ? k : n;
    std::vector<uint16_t> b(static_cast<size_t>(std::max<int64_t>(1, rows * pitch)), kPoisonBits);
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t c = 0; c < n; ++c) {
        b[static_cast<size_t>(shape_.is_b_n_major ? i * pitch + c : c * pitch + i)] = bits(b_at(w, i, c));
      }
    }
    upload(b_.emplace_back(make_poisoned<uint16_t>(rows * pitch)), b);
    const int64_t stride_k = shape_.is_b_n_major ? pitch : 1, stride_n = shape_.is_b_n_major ? 1 : pitch;
    b_views_.push_back({b_.back().data(), k, n, stride_k, stride_n, shape_.type});
    out_.emplace_back(shape_.total_rows(), padded(n, out_type()), out_type());
    out_views_.push_back({out_.back().data(), shape_.total_rows(), n, out_.back().pitch(), 1, out_type()});
    if (!shape_.has_bias) return;
    std::vector<float> bias;
    for (int64_t c = 0; c < n; ++c) bias.push_back(static_cast<float>(bias_at(w, c)));
    upload(bias_.emplace_back(make_poisoned<float>(n)), bias);
    bias_views_.push_back(bias_.back().data());
  }
  uint16_t* pinned_a() const { return static_cast<uint16_t*>(pinned_a_.data()); }
  // One element at least, so that there is an address.
  template <class T>
  static DeviceBuffer<T> make_poisoned(int64_t count) {
    DeviceBuffer<T> made(std::max<int64_t>(count, 1));
    made.fill_bytes(0xff);
    return made;
  }
  template <class T>
  static size_t bytes_of(const DeviceBuffer<T>& buffer) {
    return static_cast<size_t>(buffer.count()) * sizeof(T);
  }
  template <class T>
  static void upload(const DeviceBuffer<T>& to, const std::vector<T>& from) {
    check_cuda(cudaMemcpy(to.data(), from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "uploading");
  }

  RankShape shape_;
  int32_t me_;
  int64_t own_rows_;
  int64_t salt_ = 0;
  DeviceBuffer<uint16_t> a_;
  Pinned pinned_a_;
  ResultBuffer gathered_;
  std::vector<DeviceBuffer<uint16_t>> b_;
  std::vector<ResultBuffer> out_;
  std::vector<DeviceBuffer<float>> bias_;
  std::vector<MatrixView> b_views_, out_views_;
  std::vector<const void*> bias_views_;
};

}  // namespace tilewire
