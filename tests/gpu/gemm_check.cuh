// Matrices of known content and an element by element check of a product on the GPU: obvious and slow.
#pragma once

#include "device_buffer.cuh"

#include "device/tile/gemm.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>
#include <type_traits>

namespace tilewire {

enum class MatrixContent {
  position_coded,  // small integers that differ by place, so that every sum is exact
  random,          // about normal
};

__device__ inline uint32_t mix(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ x >> 16;
}

__device__ inline float content_at(MatrixContent content, uint32_t seed, int64_t row, int64_t col) {
  const uint32_t h = mix(mix(static_cast<uint32_t>(row) + seed * 0x9e3779b9u) + static_cast<uint32_t>(col));
  if (content == MatrixContent::position_coded) return static_cast<float>(static_cast<int32_t>(h % 9) - 4);
  float sum = 0;  // of four bytes, centred: standard deviation 1
  for (int i = 0; i < 4; ++i) sum += static_cast<float>(h >> 8 * i & 255) - 127.5f;
  return sum / 147.8f;
}

template <class Element>
__device__ Element to_element(float value) {
  if constexpr (std::is_same_v<Element, __nv_bfloat16>) {
    return __float2bfloat16_rn(value);
  } else {
    return __float2half_rn(value);
  }
}

// What lies between rows is NaN: nobody may read it.
template <class Element>
__global__ void fill_matrix(Element* data, int64_t rows, int64_t cols, int64_t pitch, MatrixContent content,
                            uint32_t seed) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < rows * pitch; i += step) {
    const int64_t row = i / pitch, col = i % pitch;
    data[i] = to_element<Element>(col < cols ? content_at(content, seed, row, col) : __int_as_float(0x7fc00000));
  }
}

struct GemmFindings {
  uint64_t worst = 0;  // error in units of the tolerance, as float bits, then the place
  uint64_t written_outside =
      0;  // elements beyond the edges of d (its rows rounded up to 8 columns) that lost their poison
};

struct CheckedProduct {
  int64_t rows, cols, depth;
  int64_t a_pitch, b_pitch, d_pitch, d_rows;  // elements; d_rows with the guard rows
  bool is_b_n_major;
};

// The tolerance of an element: one rounding to Element, and the rounding of fp32 sums. Sums that are exact must round
// exactly: any difference is a thousand tolerances.
template <class Element>
__global__ void check_product(const Element* a, const Element* b, const Element* d, CheckedProduct p, bool is_exact,
                              GemmFindings* findings) {
  constexpr double kRounding = std::is_same_v<Element, __nv_bfloat16> ? 1.0 / 256 : 1.0 / 2048;
  const int64_t col = int64_t{blockIdx.x} * blockDim.x + threadIdx.x,
                row = int64_t{blockIdx.y} * blockDim.y + threadIdx.y;
  if (col >= p.d_pitch || row >= p.d_rows) return;
  const Element value = d[row * p.d_pitch + col];
  if (row >= p.rows || col >= p.cols) {
    uint16_t bits;
    memcpy(&bits, &value, sizeof(bits));
    const bool is_padding = row < p.rows && col < (p.cols + 7) / 8 * 8;
    if (bits != 0xffff && !is_padding)
      atomicAdd(reinterpret_cast<unsigned long long*>(&findings->written_outside), 1ull);
    return;
  }
  double sum = 0, magnitude = 0;
  for (int64_t k = 0; k < p.depth; ++k) {
    const Element y = p.is_b_n_major ? b[k * p.b_pitch + col] : b[col * p.b_pitch + k];
    const double product = static_cast<double>(static_cast<float>(a[row * p.a_pitch + k])) * static_cast<float>(y);
    sum += product;
    magnitude += fabs(product);
  }
  const double tolerance = fabs(sum) * kRounding * 1.0001 + magnitude * 4e-7 + 1e-30;
  float error = static_cast<float>(fabs(static_cast<double>(static_cast<float>(value)) - sum) / tolerance);
  const float rounded = static_cast<float>(to_element<Element>(static_cast<float>(sum)));
  if (is_exact && static_cast<float>(value) != rounded) error = fmaxf(error, 1000);
  if (!(error <= 1e30f)) error = 1e30f;  // NaN, what the poison is, counts as the largest error
  const uint64_t place = static_cast<uint64_t>(row * p.cols + col) & 0xffffffffu;
  if (error > 0) {
    atomicMax(reinterpret_cast<unsigned long long*>(&findings->worst),
              static_cast<unsigned long long>(__float_as_uint(error)) << 32 | place);
  }
}

template <class Element>
struct GemmCase {
  CheckedProduct size;
  DeviceBuffer<Element> a, b, d;
  DeviceBuffer<GemmFindings> findings{1};

  // `padding`: elements by which each pitch is longer than a row rounded up to 8. d has 3 rows more than it needs.
  GemmCase(int64_t rows, int64_t cols, int64_t depth, bool is_b_n_major, int64_t padding)
      : size{rows,
             cols,
             depth,
             round(depth) + padding,
             round(is_b_n_major ? cols : depth) + padding,
             round(cols) + padding,
             rows + 3,
             is_b_n_major},
        a(rows * size.a_pitch),
        b((is_b_n_major ? depth : cols) * size.b_pitch),
        d(size.d_rows * size.d_pitch) {}

  void fill(MatrixContent content, uint32_t seed) {
    fill_matrix<<<512, 256>>>(a.data(), size.rows, size.depth, size.a_pitch, content, 2 * seed);
    fill_matrix<<<512, 256>>>(b.data(), b_rows(), b_cols(), size.b_pitch, content, 2 * seed + 1);
    check_cuda(cudaGetLastError(), "filling matrices");
  }
  GemmProblem problem() const {
    const DataType type = std::is_same_v<Element, __nv_bfloat16> ? DataType::bf16 : DataType::fp16;
    return {{a.data(), size.rows, size.depth, size.a_pitch * 2, type},
            {b.data(), b_rows(), b_cols(), size.b_pitch * 2, type},
            {d.data(), size.rows, size.cols, size.d_pitch * 2, type},
            size.is_b_n_major};
  }
  void poison() { d.fill_bytes(0xff); }
  GemmFindings check(MatrixContent content) {
    findings.fill_bytes(0);
    const dim3 block(32, 8),
        grid(static_cast<unsigned>((size.d_pitch + 31) / 32), static_cast<unsigned>((size.d_rows + 7) / 8));
    check_product<<<grid, block>>>(a.data(), b.data(), d.data(), size, content == MatrixContent::position_coded,
                                   findings.data());
    check_cuda(cudaGetLastError(), "checking a product");
    return findings.to_host()[0];
  }

 private:
  static int64_t round(int64_t n) { return (n + 7) / 8 * 8; }
  int64_t b_rows() const { return size.is_b_n_major ? size.depth : size.cols; }
  int64_t b_cols() const { return size.is_b_n_major ? size.cols : size.depth; }
};

}  // namespace tilewire
