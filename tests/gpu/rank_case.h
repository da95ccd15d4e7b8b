// One AllGather+GEMM of a rank that is a process of its own, with data that differ by place and by call: small integers,
// so that all sums are exact and results are compared bit for bit. Host code.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "device/cuda_check.cuh"
#include "executor/host_number.h"
#include "ops/ag_gemm/ag_gemm.h"
#include "ops/ag_gemm/reference.h"

namespace tilewire {

struct RankShape {
  std::string name;
  std::vector<int64_t> rows;  // of each rank
  int64_t k = 0;
  std::vector<int64_t> cols;
  DataType type = DataType::bf16;
  bool is_b_n_major = false;
  bool has_bias = false;

  int64_t total_rows() const {
    int64_t sum = 0;
    for (const int64_t r : rows) sum += r;
    return sum;
  }
};

// Memory that ends with the object; of the GPU, or pinned.
class CudaBlock {
 public:
  CudaBlock(int64_t bytes, bool is_pinned) : bytes_(std::max<int64_t>(bytes, 16)), is_pinned_(is_pinned) {
    if (is_pinned) {
      check_cuda(cudaMallocHost(&data_, static_cast<size_t>(bytes_)), "allocating pinned memory");
    } else {
      check_cuda(cudaMalloc(&data_, static_cast<size_t>(bytes_)), "allocating device memory");
      check_cuda(cudaMemset(data_, 0xff, static_cast<size_t>(bytes_)), "filling device memory");
    }
  }
  CudaBlock(CudaBlock&& other) noexcept : data_(other.data_), bytes_(other.bytes_), is_pinned_(other.is_pinned_) {
    other.data_ = nullptr;
  }
  CudaBlock& operator=(CudaBlock&&) = delete;
  ~CudaBlock() { is_pinned_ ? cudaFreeHost(data_) : cudaFree(data_); }

  uint16_t* data() const { return static_cast<uint16_t*>(data_); }
  int64_t bytes() const { return bytes_; }
  std::vector<uint16_t> to_host() const {
    std::vector<uint16_t> host(static_cast<size_t>(bytes_ / 2));
    check_cuda(cudaMemcpy(host.data(), data_, host.size() * 2, cudaMemcpyDeviceToHost), "copying to the host");
    return host;
  }

 private:
  void* data_ = nullptr;
  int64_t bytes_;
  bool is_pinned_;
};

class RankCase {
 public:
  static constexpr uint16_t kPoison = 0xffff;

  RankCase(const RankShape& shape, int32_t me)
      : shape_(shape),
        me_(me),
        own_rows_(shape.rows[static_cast<size_t>(me)]),
        a_(own_rows_ * padded(shape.k) * 2, false),
        pinned_a_(own_rows_ * padded(shape.k) * 2, true) {
    for (size_t w = 0; w < shape.cols.size(); ++w) add_weight(w);
    check_cuda(cudaDeviceSynchronize(), "preparing operands");
  }

  // The next input in pinned memory; enqueue_inputs() brings it to the GPU.
  void set_salt(int64_t salt) {
    salt_ = salt;
    const int64_t pitch = padded(shape_.k), first = first_row();
    for (int64_t row = 0; row < own_rows_; ++row) {
      for (int64_t i = 0; i < pitch; ++i) {
        pinned_a_.data()[row * pitch + i] = i < shape_.k ? bits(a_at(first + row, i)) : kPoison;
      }
    }
  }
  void enqueue_inputs(cudaStream_t stream) const {
    check_cuda(
        cudaMemcpyAsync(a_.data(), pinned_a_.data(), static_cast<size_t>(a_.bytes()), cudaMemcpyHostToDevice, stream),
        "copying inputs");
  }
  void fill_results(cudaStream_t stream, int fill = 0xff) const {
    for (const CudaBlock& out : out_) {
      check_cuda(cudaMemsetAsync(out.data(), fill, static_cast<size_t>(out.bytes()), stream), "poisoning results");
    }
  }

  ag_gemm::Arguments arguments() const {
    ag_gemm::Arguments args;
    args.a = {a_.data(), own_rows_, shape_.k, padded(shape_.k), 1, shape_.type};
    args.b = b_views_;
    args.bias = bias_views_;
    args.bias_dtype = DataType::fp32;
    args.out_dtype = shape_.type;
    args.rows = {RowCounts::From::list, shape_.rows};
    args.make_results = [views = out_views_](const ag_gemm::Problem&) {
      return ag_gemm::Arguments::Results{views, {}};
    };
    return args;
  }

  // Wrong elements; the first ones are printed.
  int64_t count_wrong() const {
    int64_t wrong = 0;
    for (size_t w = 0; w < out_.size(); ++w) {
      const std::vector<uint16_t> seen = out_[w].to_host(), right = expected(w);
      const int64_t n = shape_.cols[w], pitch = padded(n);
      for (int64_t row = 0; row < shape_.total_rows(); ++row) {
        for (int64_t c = 0; c < n; ++c) {
          const uint16_t got = seen[static_cast<size_t>(row * pitch + c)];
          const uint16_t want = right[static_cast<size_t>(row * n + c)];
          if (got != want && wrong++ < 3) {
            std::printf("  rank %d out %zu [%lld, %lld] is %04x, not %04x\n", me_, w, static_cast<long long>(row),
                        static_cast<long long>(c), got, want);
          }
        }
      }
    }
    return wrong;
  }
  // Rows of rank `r` whose results are all NaN.
  bool is_nan_in_rows_of(int32_t r) const {
    int64_t begin = 0;
    for (int32_t before = 0; before < r; ++before) begin += shape_.rows[static_cast<size_t>(before)];
    const std::vector<uint16_t> seen = out_[0].to_host();
    const int64_t n = shape_.cols[0], pitch = padded(n);
    for (int64_t row = begin; row < begin + shape_.rows[static_cast<size_t>(r)]; ++row) {
      for (int64_t c = 0; c < n; ++c) {
        if (seen[static_cast<size_t>(row * pitch + c)] != kPoison) return false;
      }
    }
    return true;
  }

 private:
  static int64_t padded(int64_t elements) { return (elements + 7) / 8 * 8; }
  int64_t first_row() const {
    int64_t first = 0;
    for (int32_t r = 0; r < me_; ++r) first += shape_.rows[static_cast<size_t>(r)];
    return first;
  }
  double a_at(int64_t row, int64_t i) const {
    return static_cast<double>((row * 7 + i * 3 + (row ^ i) + salt_) % 9 - 4);
  }
  double b_at(size_t w, int64_t i, int64_t c) const {
    return static_cast<double>((i * 5 + c * 11 + (i ^ c) + me_ * 3 + static_cast<int64_t>(w)) % 7 - 3);
  }
  double bias_at(size_t w, int64_t c) const {
    return static_cast<double>((c * 13 + me_ + static_cast<int64_t>(w)) % 31 - 15) / 2;
  }
  uint16_t bits(double value) const {
    const auto number = static_cast<float>(value);
    return shape_.type == DataType::bf16 ? fp32_to_bf16(number) : fp32_to_fp16(number);
  }

  std::vector<uint16_t> expected(size_t w) const {
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
    std::vector<uint16_t> y;
    y.reserve(sums.size());
    for (const double sum : sums) y.push_back(bits(sum));
    return y;
  }

  void add_weight(size_t w) {
    const int64_t n = shape_.cols[w], k = shape_.k;
    const int64_t pitch = padded(shape_.is_b_n_major ? n : k), rows = shape_.is_b_n_major ? k : n;
    std::vector<uint16_t> b(static_cast<size_t>(std::max<int64_t>(1, rows * pitch)), kPoison);
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t c = 0; c < n; ++c) {
        b[static_cast<size_t>(shape_.is_b_n_major ? i * pitch + c : c * pitch + i)] = bits(b_at(w, i, c));
      }
    }
    upload(b_.emplace_back(rows * pitch * 2, false), b.data(), static_cast<size_t>(rows * pitch * 2));
    const int64_t stride_k = shape_.is_b_n_major ? pitch : 1, stride_n = shape_.is_b_n_major ? 1 : pitch;
    b_views_.push_back({b_.back().data(), k, n, stride_k, stride_n, shape_.type});
    out_.emplace_back(shape_.total_rows() * padded(n) * 2, false);
    out_views_.push_back({out_.back().data(), shape_.total_rows(), n, padded(n), 1, shape_.type});
    if (!shape_.has_bias) return;
    std::vector<float> bias;
    for (int64_t c = 0; c < n; ++c) bias.push_back(static_cast<float>(bias_at(w, c)));
    upload(bias_.emplace_back(n * 4, false), bias.data(), bias.size() * 4);
    bias_views_.push_back(bias_.back().data());
  }
  static void upload(const CudaBlock& to, const void* from, size_t bytes) {
    check_cuda(cudaMemcpy(to.data(), from, bytes, cudaMemcpyHostToDevice), "uploading");
  }

  RankShape shape_;
  int32_t me_;
  int64_t own_rows_;
  int64_t salt_ = 0;
  CudaBlock a_, pinned_a_;
  std::vector<CudaBlock> b_, out_, bias_;
  std::vector<MatrixView> b_views_, out_views_;
  std::vector<const void*> bias_views_;
};

}  // namespace tilewire
