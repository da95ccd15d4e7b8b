// Tensors of known content for ring attention, and an element by element check of its results on the GPU, in fp64: obvious and
// slow.
#pragma once

#include "ops/attention/mask.h"

#include <tilewire/data_type.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace tilewire {

__device__ inline uint32_t mixed(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ x >> 16;
}

// About normal, of standard deviation 1: another one for each element, tensor, rank and call.
__device__ inline float random_at(uint32_t seed, int64_t at) {
  const uint32_t h = mixed(mixed(static_cast<uint32_t>(at) + seed * 0x9e3779b9u) ^ static_cast<uint32_t>(at >> 32));
  float sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<float>(h >> 8 * i & 255) - 127.5f;
  return sum / 147.8f;
}

__device__ inline uint16_t narrowed(float value, DataType type) {
  return type == DataType::bf16 ? __bfloat16_as_ushort(__float2bfloat16_rn(value))
                                : __half_as_ushort(__float2half_rn(value));
}
__device__ inline double widened(uint16_t bits, DataType type) {
  return type == DataType::bf16 ? static_cast<double>(__bfloat162float(__ushort_as_bfloat16(bits)))
                                : static_cast<double>(__half2float(__ushort_as_half(bits)));
}

// [batch, rows, heads, dim] of one rank, contiguous but for `pad` elements of NaN behind each head of a row.
struct CheckedHeads {
  uint16_t* data;
  int64_t batch, rows, heads, dim, pad;
  uint32_t seed;
  float spread;

  __host__ __device__ int64_t pitch() const { return dim + pad; }
  __host__ __device__ int64_t elements() const { return batch * rows * heads * pitch(); }
  __host__ __device__ const uint16_t* at(int64_t b, int64_t row, int64_t head) const {
    return data + ((b * rows + row) * heads + head) * pitch();
  }
};

__global__ void fill_heads(CheckedHeads h, DataType type, const int64_t* salt) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < h.elements(); i += step) {
    const float value = h.spread * random_at(h.seed + static_cast<uint32_t>(*salt) * 7919u, i);
    h.data[i] = i % h.pitch() < h.dim ? narrowed(value, type) : 0xffff;
  }
}

struct AttentionFindings {
  unsigned long long worst_out = 0;  // error in tolerances, as float bits, then the place
  unsigned long long worst_lse = 0;
  unsigned long long first_wrong = 0;  // place + 1 of an element, the last of all: 2^64 - 1 - place
  unsigned long long wrong = 0;
  float got = 0, want = 0, lse_got = 0, lse_want = 0;  // of some wrong element and of some wrong row
  int64_t place = -1, lse_place = -1;
};

// The keys of all ranks, one rank behind the other, and where each is.
struct CheckedKeys {
  const CheckedHeads* k;  // [ranks]
  const CheckedHeads* v;
  const int64_t* row_begin;  // [ranks + 1]
  const int64_t* positions;  // [rows of all]
  int32_t ranks;
};

// A block a row of queries. `weights`: room for one number a key and block.
__global__ void check_attention(CheckedHeads q, CheckedHeads out, const float* lse, CheckedKeys keys,
                                const attention::KeySpan* spans, double scale, DataType type, double* weights,
                                AttentionFindings* findings) {
  __shared__ double shared[128];
  const auto thread = static_cast<int64_t>(threadIdx.x);
  const int64_t all = keys.row_begin[keys.ranks], rows = q.batch * q.rows * q.heads;
  double* w = weights + blockIdx.x * all;
  const auto joined = [&](double mine, auto combine) {
    __syncthreads();
    shared[thread] = mine;
    __syncthreads();
    double result = shared[0];
    for (int i = 1; i < 128; ++i) result = combine(result, shared[i]);
    return result;
  };
  for (int64_t item = blockIdx.x; item < rows; item += gridDim.x) {
    const int64_t head = item % q.heads, row = item / q.heads % q.rows, b = item / q.heads / q.rows;
    const attention::KeySpan span = spans[row];
    const uint16_t* query = q.at(b, row, head);
    double most = -INFINITY;
    for (int32_t r = 0; r < keys.ranks; ++r) {
      const CheckedHeads& k = keys.k[r];
      for (int64_t i = thread; i < k.rows; i += 128) {
        const int64_t at = keys.row_begin[r] + i;
        double score = -INFINITY;
        if (span.holds(keys.positions[at])) {
          const uint16_t* key = k.at(b, i, head / (q.heads / k.heads));
          score = 0;
          for (int64_t d = 0; d < q.dim; ++d) score += widened(query[d], type) * widened(key[d], type);
          score *= scale;
        }
        w[at] = score;
        most = fmax(most, score);
      }
    }
    most = joined(most, [](double x, double y) { return fmax(x, y); });
    double sum = 0;
    for (int64_t at = thread; at < all; at += 128) {
      w[at] = most == -INFINITY ? 0 : exp(w[at] - most);
      sum += w[at];
    }
    sum = joined(sum, [](double x, double y) { return x + y; });
    if (thread == 0) {
      const double want = sum == 0 ? -INFINITY : most + log(sum);
      const int64_t place = (b * q.heads + head) * q.rows + row;
      const double got = lse[place];
      double error = want == got ? 0 : fabs(got - want) / (2e-5 + fabs(want) * 2e-6);
      if (!(error <= 1e30)) error = 1e30;
      atomicMax(&findings->worst_lse, static_cast<unsigned long long>(__float_as_uint(static_cast<float>(error)))
                                          << 32);
      if (error > 1) {
        atomicAdd(&findings->wrong, 1ull);
        findings->lse_got = static_cast<float>(got);
        findings->lse_want = static_cast<float>(want);
        findings->lse_place = place;
      }
    }
    for (int64_t d = thread; d < q.dim; d += 128) {
      double want = 0, size = 0;
      for (int32_t r = 0; r < keys.ranks; ++r) {
        const CheckedHeads& v = keys.v[r];
        for (int64_t i = 0; i < v.rows; ++i) {
          const double weight = w[keys.row_begin[r] + i];
          if (weight == 0) continue;
          const double product = weight * widened(v.at(b, i, head / (q.heads / v.heads))[d], type);
          want += product;
          size += fabs(product);
        }
      }
      if (sum > 0) {
        want /= sum;
        size /= sum;
      }
      const double got = widened(out.at(b, row, head)[d], type);
      const double rounding = type == DataType::bf16 ? 1.0 / 256 : 1.0 / 2048;
      double error = fabs(got - want) / (rounding * 1.05 * (fabs(want) + size) + 1e-6);
      if (!(error <= 1e30)) error = 1e30;
      const int64_t place = out.at(b, row, head) - out.data + d;
      const auto bits = static_cast<unsigned long long>(__float_as_uint(static_cast<float>(error)));
      atomicMax(&findings->worst_out, bits << 32 | (static_cast<unsigned long long>(place) & 0xffffffffu));
      if (error <= 1) continue;
      atomicAdd(&findings->wrong, 1ull);
      const unsigned long long before = atomicMax(&findings->first_wrong, ~static_cast<unsigned long long>(place));
      if (before < ~static_cast<unsigned long long>(place)) {
        findings->got = static_cast<float>(got);
        findings->want = static_cast<float>(want);
        findings->place = place;
      }
    }
    __syncthreads();
  }
}

}  // namespace tilewire
