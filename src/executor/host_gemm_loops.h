// The inner loops of host_gemm, included by one source file for each variant, which is compiled for that variant's
// instructions and defines
//   TILEWIRE_GEMM_KERNEL   the name of the HostGemmKernel to define
//   TILEWIRE_GEMM_BLOCK_K  how many steps along k are summed in registers before they are added to the sum in memory
//   Eigen                  as another name for the namespace
//
// Why the renaming: Eigen is made of inline templates. Compiled for AVX-512 here and for plain x86-64 elsewhere they
// would have the same names, the linker would keep one of the two, and that one could be code that the processor cannot
// run (or, here, the slow one). Under its own name each variant keeps its own. For the same reason everything below has
// internal linkage, and host_gemm_symbols_test looks at the object files.
//
// Why the same bits everywhere: of the loops that Eigen's block product has for full and for ragged edges only the one
// for full blocks is used, since the sizes are padded with zeros to its multiples. It sums each element in the order of
// k, in one register, and starts anew every TILEWIRE_GEMM_BLOCK_K steps whatever the sizes of the caches.
#pragma once

#define EIGEN_DONT_PARALLELIZE
#define EIGEN_NO_DEBUG
#include <Eigen/Core>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "executor/host_gemm_kernel.h"
#include "executor/number_bits.h"

namespace tilewire {
namespace {

// Eigen computes C = L * R with C in column-major order. A row-major tile [rows, cols] is the column-major [cols,
// rows], so L is b transposed and R is a transposed: vectors run along the columns of the tile.
using Index = Eigen::Index;
using Traits = Eigen::internal::gebp_traits<float, float>;
using OutMapper = Eigen::internal::blas_data_mapper<float, Index, Eigen::ColMajor>;
using AMapper = Eigen::internal::const_blas_data_mapper<float, Index, Eigen::ColMajor>;
using BMapper = Eigen::internal::const_blas_data_mapper<float, Index, Eigen::RowMajor>;
using Product = Eigen::internal::gebp_kernel<float, float, Index, OutMapper, Traits::mr, Traits::nr>;
using PackA = Eigen::internal::gemm_pack_rhs<float, Index, AMapper, Traits::nr, Eigen::ColMajor>;
using PackB = Eigen::internal::gemm_pack_lhs<float, Index, BMapper, Traits::mr, Traits::LhsProgress,
                                             Traits::LhsPacket4Packing, Eigen::RowMajor>;

constexpr int64_t kRowStep = Traits::nr;
constexpr int64_t kColStep = Traits::mr;
constexpr int64_t kBlockK = TILEWIRE_GEMM_BLOCK_K;
// The three buffers together are about what a second-level cache holds.
constexpr int64_t kMaxRows = 128 / kRowStep * kRowStep;
constexpr int64_t kMaxCols = 288 / kColStep * kColStep;
static_assert(kMaxRows > 0 && kMaxCols > 0 && kBlockK % 16 == 0);

constexpr int64_t round_to(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// A sum never is -0.0, since it begins as 0.0; so a missing bias can be a bias of 0.0.
struct Buffers {
  float* sums;     // [padded rows, padded cols]
  float* a;        // [padded rows / kRowStep, depth, kRowStep]
  float* b;        // [padded cols / kColStep, depth, kColStep]
  float* staging;  // [max(kRowStep, kColStep), kBlockK], converted and not yet packed
  float* bias;     // [cols]
};

constexpr int64_t kStagingRows = kColStep > kRowStep ? kColStep : kRowStep;
constexpr int64_t kBufferFloats =
    round_to(kMaxRows * kMaxCols, 16) + kMaxRows * kBlockK + kMaxCols * kBlockK + kStagingRows * kBlockK + kMaxCols;

Buffers divide(float* memory) {
  Buffers buffers;
  buffers.sums = memory;
  buffers.a = buffers.sums + round_to(kMaxRows * kMaxCols, 16);
  buffers.b = buffers.a + kMaxRows * kBlockK;
  buffers.staging = buffers.b + kMaxCols * kBlockK;
  buffers.bias = buffers.staging + kStagingRows * kBlockK;
  return buffers;
}

// What one element of an input is in memory, and how it becomes an fp32. A signalling NaN is left as it is: the
// arithmetic makes it quiet.
struct Bf16 {
  using Stored = uint16_t;
  static float widen(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
};
struct Fp16 {
  using Stored = uint16_t;
  static float widen(uint16_t bits) { return fp16_bits_to_fp32(bits); }
};
struct Fp32 {
  using Stored = float;
  static float widen(float value) { return value; }
};

template <class Visit>
[[gnu::always_inline]] inline void visit_type(DataType type, Visit&& visit) {
  switch (type) {
    case DataType::bf16: return visit(Bf16{});
    case DataType::fp16: return visit(Fp16{});
    case DataType::fp32: return visit(Fp32{});
  }
}

// `count` contiguous elements.
template <class Type>
[[gnu::always_inline]] inline void widen(const typename Type::Stored* __restrict in, int64_t count,
                                         float* __restrict out) {
  int64_t i = 0;
#if defined(__F16C__)
  if constexpr (std::is_same_v<Type, Fp16>) {
    for (; i + 8 <= count; i += 8) {
      _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
    }
  }
#endif
  for (; i < count; ++i) out[i] = Type::widen(in[i]);
}

// Steps k0 .. k0 + depth of all rows of the block.
template <class Type>
void pack_a(const HostGemmBlock& block, int64_t k0, int64_t depth, const Buffers& buffers) {
  for (int64_t row = 0; row < block.rows; row += kRowStep) {
    const int64_t present = std::min(kRowStep, block.rows - row);
    for (int64_t i = 0; i < present; ++i) {
      const auto* elements = static_cast<const typename Type::Stored*>(block.a_rows[row + i]);
      widen<Type>(elements + k0, depth, buffers.staging + i * kBlockK);
    }
    for (int64_t i = present; i < kRowStep; ++i) std::fill_n(buffers.staging + i * kBlockK, depth, 0.0f);
    PackA()(buffers.a + row * depth, AMapper(buffers.staging, kBlockK), depth, kRowStep);
  }
}

// `depth` steps of one panel of kColStep columns, of which `present` exist.
template <class Type>
void pack_b_panel(const HostGemmBlock& block, const typename Type::Stored* b, int64_t present, int64_t depth,
                  float* staging, float* panel) {
  if (block.b_stride_n == 1 && present == kColStep) {
    // As packed: depth rows of kColStep columns.
    for (int64_t i = 0; i < depth; ++i) widen<Type>(b + i * block.b_stride_k, kColStep, panel + i * kColStep);
    return;
  }
  if (block.b_stride_k == 1) {
    for (int64_t c = 0; c < present; ++c) widen<Type>(b + c * block.b_stride_n, depth, staging + c * kBlockK);
    for (int64_t c = present; c < kColStep; ++c) std::fill_n(staging + c * kBlockK, depth, 0.0f);
    PackB()(panel, BMapper(staging, kBlockK), depth, kColStep);
    return;
  }
  for (int64_t i = 0; i < depth; ++i) {
    const auto* from = b + i * block.b_stride_k;
    float* to = panel + i * kColStep;
    for (int64_t c = 0; c < present; ++c) to[c] = Type::widen(from[c * block.b_stride_n]);
    for (int64_t c = present; c < kColStep; ++c) to[c] = 0.0f;
  }
}

template <class Type>
void pack_b(const HostGemmBlock& block, int64_t k0, int64_t depth, const Buffers& buffers) {
  const auto* b = static_cast<const typename Type::Stored*>(block.b) + k0 * block.b_stride_k;
  for (int64_t col = 0; col < block.cols; col += kColStep) {
    pack_b_panel<Type>(block, b + col * block.b_stride_n, std::min(kColStep, block.cols - col), depth, buffers.staging,
                       buffers.b + col * depth);
  }
}

// sums + bias, rounded to the type of the output.
void write_out(const HostGemmBlock& block, const float* sums, int64_t padded_cols, const float* bias) {
  for (int64_t row = 0; row < block.rows; ++row) {
    const float* __restrict sum = sums + row * padded_cols;
    char* at = static_cast<char*>(block.out) + row * block.out_pitch_bytes;
    if (block.out_type == DataType::fp32) {
      float* __restrict out = reinterpret_cast<float*>(at);
      for (int64_t c = 0; c < block.cols; ++c) out[c] = sum[c] + bias[c];
    } else if (block.out_type == DataType::bf16) {
      uint16_t* __restrict out = reinterpret_cast<uint16_t*>(at);
      for (int64_t c = 0; c < block.cols; ++c) out[c] = fp32_to_bf16_bits(sum[c] + bias[c]);
    } else {
      uint16_t* __restrict out = reinterpret_cast<uint16_t*>(at);
      for (int64_t c = 0; c < block.cols; ++c) out[c] = fp32_to_fp16_bits(sum[c] + bias[c]);
    }
  }
}

void compute(const HostGemmBlock& block, float* memory) {
  const Buffers buffers = divide(memory);
  const int64_t padded_rows = round_to(block.rows, kRowStep);
  const int64_t padded_cols = round_to(block.cols, kColStep);
  std::fill_n(buffers.sums, padded_rows * padded_cols, 0.0f);
  for (int64_t k0 = 0; k0 < block.k; k0 += kBlockK) {
    const int64_t depth = std::min(kBlockK, block.k - k0);
    visit_type(block.a_type, [&](auto type) { pack_a<decltype(type)>(block, k0, depth, buffers); });
    visit_type(block.b_type, [&](auto type) { pack_b<decltype(type)>(block, k0, depth, buffers); });
    Product()(OutMapper(buffers.sums, padded_cols), buffers.b, buffers.a, padded_cols, depth, padded_rows, 1.0f);
  }
  std::fill_n(buffers.bias, block.cols, 0.0f);
  if (block.bias != nullptr) {
    visit_type(block.bias_type, [&](auto type) {
      using Type = decltype(type);
      widen<Type>(static_cast<const typename Type::Stored*>(block.bias), block.cols, buffers.bias);
    });
  }
  write_out(block, buffers.sums, padded_cols, buffers.bias);
}

}  // namespace

const HostGemmKernel TILEWIRE_GEMM_KERNEL = {kMaxRows, kMaxCols, kRowStep, kColStep, kBufferFloats, compute};

}  // namespace tilewire
