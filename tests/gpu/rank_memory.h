// Device memory of a rank that is a process of its own: an input that changes in stream order, and results. Host code.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "coded_values.h"
#include "device_buffer.cuh"
#include "pinned.cuh"
#include "result_buffer.cuh"

#include <tilewire/matrix.h>

namespace tilewire {

// One element at least, so that there is an address.
template <class T>
DeviceBuffer<T> make_poisoned(int64_t count) {
  DeviceBuffer<T> made(std::max<int64_t>(count, 1));
  made.fill_bytes(0xff);
  return made;
}
template <class T>
void upload(const DeviceBuffer<T>& to, const std::vector<T>& from) {
  check_cuda(cudaMemcpy(to.data(), from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "uploading");
}

// A weight [K, N] as it is stored, and its view. value(i, c) gives its elements.
class RankWeight {
 public:
  template <class Value>
  RankWeight(int64_t k, int64_t n, DataType type, bool is_n_major, const Value& value)
      : data_(make_poisoned<uint16_t>((is_n_major ? k : n) * padded(is_n_major ? n : k))) {
    const int64_t pitch = padded(is_n_major ? n : k);
    std::vector<uint16_t> b(static_cast<size_t>(data_.count()), kPoisonBits);
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t c = 0; c < n; ++c) {
        b[static_cast<size_t>(is_n_major ? i * pitch + c : c * pitch + i)] = narrow_bits_of(value(i, c), type);
      }
    }
    upload(data_, b);
    view_ = {data_.data(), k, n, is_n_major ? pitch : 1, is_n_major ? 1 : pitch, type};
  }

  const MatrixView& view() const { return view_; }

 private:
  DeviceBuffer<uint16_t> data_;
  MatrixView view_;
};

// The rows of a, whose next values wait in pinned memory until enqueue() brings them to the GPU.
class RankInput {
 public:
  RankInput(int64_t rows, int64_t k, DataType type)
      : rows_(rows),
        k_(k),
        type_(type),
        data_(make_poisoned<uint16_t>(rows * padded(k))),
        next_(static_cast<size_t>(data_.count()) * sizeof(uint16_t)) {}

  template <class Value>
  void set(const Value& value) {
    auto* next = static_cast<uint16_t*>(next_.data());
    const int64_t pitch = padded(k_);
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t i = 0; i < pitch; ++i) {
        next[row * pitch + i] = i < k_ ? narrow_bits_of(value(row, i), type_) : kPoisonBits;
      }
    }
  }
  void enqueue(cudaStream_t stream) const {
    const size_t bytes = static_cast<size_t>(data_.count()) * sizeof(uint16_t);
    check_cuda(cudaMemcpyAsync(data_.data(), next_.data(), bytes, cudaMemcpyHostToDevice, stream), "copying inputs");
  }
  MatrixView view() const { return {data_.data(), rows_, k_, padded(k_), 1, type_}; }

 private:
  int64_t rows_, k_;
  DataType type_;
  DeviceBuffer<uint16_t> data_;
  Pinned next_;
};

// What a number may be.
struct Bounds {
  double want = 0;
  double tolerance = 0;

  bool holds(double got) const { return got == want || std::abs(got - want) <= tolerance; }
};

// Rows of results, which may be longer than their columns.
class RankResult {
 public:
  RankResult(int64_t rows, int64_t cols, DataType type)
      : rows_(rows), cols_(cols), buffer_(rows, padded(cols, type), type) {}

  void fill(int byte, cudaStream_t stream) const {
    check_cuda(cudaMemsetAsync(buffer_.data(), byte, buffer_.bytes(), stream), "poisoning results");
  }
  MatrixView view() const { return {buffer_.data(), rows_, cols_, buffer_.pitch(), 1, buffer_.type()}; }

  // right(row, c) are the bits of its elements. The first wrong ones are printed.
  template <class Right>
  int64_t count_wrong(const std::string& name, const Right& right) const {
    const std::vector<uint32_t> seen = buffer_.to_host();
    int64_t wrong = 0;
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t c = 0; c < cols_; ++c) {
        const uint32_t got = seen[static_cast<size_t>(row * buffer_.pitch() + c)], want = right(row, c);
        if (got != want && wrong++ < 3) {
          std::printf("  %s [%lld, %lld] is %04x, not %04x\n", name.c_str(), static_cast<long long>(row),
                      static_cast<long long>(c), got, want);
        }
      }
    }
    return wrong;
  }
  // The same of bounds(row, c), for what is rounded on its way.
  template <class BoundsOf>
  int64_t count_outside(const std::string& name, const BoundsOf& bounds) const {
    const std::vector<uint32_t> seen = buffer_.to_host();
    int64_t wrong = 0;
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t c = 0; c < cols_; ++c) {
        const double got = number_of(seen[static_cast<size_t>(row * buffer_.pitch() + c)], buffer_.type());
        const Bounds allowed = bounds(row, c);
        if (allowed.holds(got) || wrong++ >= 3) continue;
        std::printf("  %s [%lld, %lld] is %g, not %g within %g\n", name.c_str(), static_cast<long long>(row),
                    static_cast<long long>(c), got, allowed.want, allowed.tolerance);
      }
    }
    return wrong;
  }
  bool is_nan(int64_t first_row, int64_t rows) const {
    const std::vector<uint32_t> seen = buffer_.to_host();
    for (int64_t row = first_row; row < first_row + rows; ++row) {
      for (int64_t c = 0; c < cols_; ++c) {
        if (!is_nan_of(seen[static_cast<size_t>(row * buffer_.pitch() + c)], buffer_.type())) return false;
      }
    }
    return true;
  }

 private:
  int64_t rows_, cols_;
  ResultBuffer buffer_;
};

}  // namespace tilewire
