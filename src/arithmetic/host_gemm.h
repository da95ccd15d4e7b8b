// The arithmetic of a CPU rank: one output tile on the calling thread,
//   out[r, c] = round(sum over i of a[r, i] * b[i, c] + bias[c]),
// accumulated in fp32 by Eigen on converted panels.
//
// The bits of an element depend on its row of a, its column of b, its bias and the variant, and on nothing else: not on
// where the tile begins, on its shape, on the thread or on what else is computed. So a fused call, an unfused call and
// any split into tiles agree to the last bit. Variants differ from each other (with and without fused multiply-add,
// different block lengths along k), so ranks that must agree have to use the same variant.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <tilewire/data_type.h>

namespace tilewire {

// Which instructions the inner loops were compiled for.
enum class HostGemmVariant : uint8_t {
  generic,  // what the compiler targets by default; the only one that is not x86
  avx2,     // AVX2, FMA and F16C
  avx512,   // AVX-512 F, BW, DQ and VL
};

const char* to_string(HostGemmVariant variant);
// Whether this library holds the variant and this processor can run it.
bool host_gemm_variant_is_available(HostGemmVariant variant);
// "auto": the fastest that is available here. Otherwise the one named: Error(unavailable) when it is not available
// here, Error(invalid_argument) for any other word.
HostGemmVariant host_gemm_variant(std::string_view wanted = "auto");

// Rows of a that lie in one place. Row first_row + i of the tile is at base + i * pitch_bytes, up to the first row of
// the next segment; its elements are contiguous.
struct RowSegment {
  int64_t first_row = 0;
  const void* base = nullptr;
  int64_t pitch_bytes = 0;
};

// One tile. Pointers are aligned to their element type; what is not read (rows, cols or k is 0) may be null.
struct HostGemmTile {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t k = 0;

  // a [rows, k]: the first segment begins at row 0, first rows rise.
  std::span<const RowSegment> a;
  DataType a_type = DataType::bf16;

  // b [k, cols]: element (i, c) is b_stride_k * i + b_stride_n * c elements from b.
  const void* b = nullptr;
  int64_t b_stride_k = 0;
  int64_t b_stride_n = 1;
  DataType b_type = DataType::bf16;

  // bias [cols], contiguous; null: none.
  const void* bias = nullptr;
  DataType bias_type = DataType::bf16;

  // out [rows, cols], rows out_pitch_bytes apart.
  void* out = nullptr;
  int64_t out_pitch_bytes = 0;
  DataType out_type = DataType::bf16;
};

// The working memory of one thread (at most 600 KiB), allocated once, and the variant it computes with. It has a fixed
// size: tiles of any shape are cut to it.
class HostGemmScratch {
 public:
  // Throws Error(unavailable) when this processor cannot run the variant.
  explicit HostGemmScratch(HostGemmVariant variant = host_gemm_variant());
  ~HostGemmScratch();
  HostGemmScratch(HostGemmScratch&&) noexcept;
  HostGemmScratch& operator=(HostGemmScratch&&) noexcept;

  HostGemmVariant variant() const { return variant_; }

 private:
  friend void host_gemm_tile(const HostGemmTile& tile, HostGemmScratch& scratch);
  struct Memory;

  HostGemmVariant variant_;
  std::unique_ptr<Memory> memory_;
};

// Computes one tile. With k = 0 it writes the bias, or zeros. Throws Error(internal) for negative sizes, a missing
// pointer or segments out of order. Thread-safe for different scratches.
void host_gemm_tile(const HostGemmTile& tile, HostGemmScratch& scratch);

}  // namespace tilewire
