// One call of an op that sums products over ranks, of a rank that is a process of its own, with coded values
// (reduction_values.h). Host code.
//
// Op is one of rank_ops.h, with
//   Device
//   first_row(size, rank), rows(size, rank), bias_of(rank)    as in reduction_case.cuh
//   set_rows(Arguments&, size)                                what is its own of the arguments
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rank_memory.h"
#include "reduction_values.h"

namespace tilewire {

template <class Op>
class ReductionRankCase {
 public:
  using Device = typename Op::Device;
  using Arguments = typename Device::Arguments;

  ReductionRankCase(const ReductionSize& size, int32_t me)
      : size_(size),
        me_(me),
        reference_(size),
        a_(rows_before(size, static_cast<int32_t>(size.rows.size())), depth_of(size, me), size.type),
        b_(depth_of(size, me), size.n, size.type, size.is_b_n_major,
           [&](int64_t i, int64_t c) { return coded_b(me, 0, i, c); }),
        out_(Op::rows(size, me), size.n, size.out) {
    if (size.has_bias) {
      std::vector<float> bias;
      for (int64_t c = 0; c < size.n; ++c) bias.push_back(static_cast<float>(coded_bias(Op::bias_of(me), 0, c)));
      upload(bias_.emplace(make_poisoned<float>(size.n)), bias);
    }
    if (size.has_residual) {
      std::vector<float> residual;
      for (int64_t c = 0; c < size.n; ++c) {
        for (int64_t row = 0; row < Op::rows(size, me); ++row) residual.push_back(coded_residual(row, c));
      }
      upload(residual_.emplace(make_poisoned<float>(static_cast<int64_t>(residual.size()))), residual);
    }
    check_cuda(cudaDeviceSynchronize(), "preparing operands");
  }

  // The next input in pinned memory; enqueue_inputs() brings it to the GPU.
  void set_salt(int64_t salt) {
    salt_ = salt;
    a_.set([&](int64_t row, int64_t i) { return coded_factor(me_, row, i, salt); });
  }
  void enqueue_inputs(cudaStream_t stream) const { a_.enqueue(stream); }
  void fill_results(cudaStream_t stream, int fill = 0xff) const { out_.fill(fill, stream); }

  Arguments arguments() const {
    Arguments args;
    args.a = a_.view();
    args.b = {b_.view()};
    args.bias = {bias_ ? bias_->data() : nullptr};
    args.bias_dtype = DataType::fp32;
    // Column by column, so that strides count.
    if (residual_) args.residual = MatrixView{residual_->data(), own_rows(), size_.n, 1, own_rows(), DataType::fp32};
    args.out_dtype = size_.out;
    args.wire_dtype = size_.wire;
    Op::set_rows(args, size_);
    args.make_results = [out = out_.view()](const auto&) { return out; };
    return args;
  }

  // Wrong elements; the first ones are printed.
  int64_t count_wrong() {
    std::vector<uint32_t>& right = right_[salt_];
    if (right.empty()) right = reference_.expected(salt_, Op::first_row(size_, me_), own_rows(), Op::bias_of(me_));
    return out_.count_wrong("rank " + std::to_string(me_) + " out",
                            [&](int64_t row, int64_t c) { return right[static_cast<size_t>(row * size_.n + c)]; });
  }
  // Every sum has a part of each rank.
  bool is_nan_without(int32_t) const { return out_.is_nan(0, own_rows()); }

 private:
  int64_t own_rows() const { return Op::rows(size_, me_); }

  ReductionSize size_;
  int32_t me_;
  int64_t salt_ = 0;
  ReductionReference reference_;
  std::map<int64_t, std::vector<uint32_t>> right_;  // results, by salt
  RankInput a_;
  RankWeight b_;
  RankResult out_;
  std::optional<DeviceBuffer<float>> bias_, residual_;
};

}  // namespace tilewire
