#include "arithmetic/host_gemm.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

#include "arithmetic/host_gemm_kernel.h"
#include "base/bytes.h"
#include "base/check.h"

namespace tilewire {
namespace {

constexpr std::align_val_t kBufferAlignment{64};

// nullptr where this library or this processor does not have the variant.
const HostGemmKernel* kernel_of(HostGemmVariant variant) {
  if (variant == HostGemmVariant::generic) return &kHostGemmGeneric;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (variant == HostGemmVariant::avx2 && has_avx2) return &kHostGemmAvx2;
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (variant == HostGemmVariant::avx512 && has_avx512) return &kHostGemmAvx512;
#endif
  return nullptr;
}

constexpr std::array kFastestFirst = {HostGemmVariant::avx512, HostGemmVariant::avx2, HostGemmVariant::generic};

std::string available_names() {
  std::string names = "auto";
  for (HostGemmVariant variant : kFastestFirst) {
    if (kernel_of(variant) != nullptr) names += std::string(", ") + to_string(variant);
  }
  return names;
}

const HostGemmKernel& require_kernel(HostGemmVariant variant) {
  if (const HostGemmKernel* kernel = kernel_of(variant)) return *kernel;
  throw Error(ErrorKind::unavailable, {.what = "this processor cannot run that variant of the host arithmetic",
                                       .values = fmt::format("variant = {}", to_string(variant)),
                                       .limit = "available here: " + available_names(),
                                       .advice = "choose one of these"});
}

void check_segments(const HostGemmTile& tile) {
  TILEWIRE_CHECK(!tile.a.empty() && tile.a.front().first_row == 0, ErrorKind::internal,
                 "the first of {} segments of a must begin at row 0", tile.a.size());
  for (size_t i = 0; i < tile.a.size(); ++i) {
    const RowSegment& segment = tile.a[i];
    if (i > 0) TILEWIRE_CHECK_GT(segment.first_row, tile.a[i - 1].first_row, ErrorKind::internal, "segment {}", i);
    if (segment.first_row < tile.rows) {
      TILEWIRE_CHECK(segment.base != nullptr, ErrorKind::internal, "segment {} of a has no memory", i);
    }
  }
}

void check(const HostGemmTile& tile) {
  TILEWIRE_CHECK_GE(tile.rows, 0, ErrorKind::internal, "rows of a tile");
  TILEWIRE_CHECK_GE(tile.cols, 0, ErrorKind::internal, "columns of a tile");
  TILEWIRE_CHECK_GE(tile.k, 0, ErrorKind::internal, "k of a tile");
  if (tile.rows == 0 || tile.cols == 0) return;
  TILEWIRE_CHECK(tile.out != nullptr, ErrorKind::internal, "a tile of {} x {} has no output", tile.rows, tile.cols);
  if (tile.k == 0) return;
  TILEWIRE_CHECK(tile.b != nullptr, ErrorKind::internal, "a tile with k = {} has no b", tile.k);
  check_segments(tile);
}

// Pointers to `count` rows of a from `first` on.
void find_rows(const HostGemmTile& tile, int64_t first, int64_t count, const void** rows) {
  size_t segment = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = first + i;
    while (segment + 1 < tile.a.size() && tile.a[segment + 1].first_row <= row) ++segment;
    const RowSegment& s = tile.a[segment];
    rows[i] = static_cast<const std::byte*>(s.base) + (row - s.first_row) * s.pitch_bytes;
  }
}

template <class Pointer>
Pointer advance(Pointer pointer, int64_t offset_bytes) {
  using Byte = std::conditional_t<std::is_same_v<Pointer, const void*>, const std::byte*, std::byte*>;
  return pointer == nullptr ? nullptr : static_cast<Byte>(pointer) + offset_bytes;
}

struct Part {
  int64_t begin;
  int64_t size;
};

// The part from `begin` on of `total`, cut into parts of equal size as far as `step` allows, none above `limit`.
Part part_at(int64_t begin, int64_t total, int64_t limit, int64_t step) {
  const int64_t size = std::min(limit, round_up(div_up(total, div_up(total, limit)), step));
  return {begin, std::min(size, total - begin)};
}

}  // namespace

const char* to_string(HostGemmVariant variant) {
  switch (variant) {
    case HostGemmVariant::generic: return "generic";
    case HostGemmVariant::avx2: return "avx2";
    case HostGemmVariant::avx512: return "avx512";
  }
  return "unknown";
}

bool host_gemm_variant_is_available(HostGemmVariant variant) { return kernel_of(variant) != nullptr; }

HostGemmVariant host_gemm_variant(std::string_view wanted) {
  for (HostGemmVariant variant : kFastestFirst) {
    if (wanted == to_string(variant)) {
      require_kernel(variant);
      return variant;
    }
    if (wanted == "auto" && kernel_of(variant) != nullptr) return variant;
  }
  throw Error(ErrorKind::invalid_argument, {.what = "unknown variant of the host arithmetic",
                                            .values = fmt::format("variant = '{}'", wanted),
                                            .limit = "available here: " + available_names(),
                                            .advice = "choose one of these"});
}

struct HostGemmScratch::Memory {
  explicit Memory(const HostGemmKernel& k)
      : kernel(k),
        buffers(static_cast<float*>(
            ::operator new(static_cast<size_t>(k.buffer_floats) * sizeof(float), kBufferAlignment))),
        rows(static_cast<size_t>(k.max_rows)) {}
  ~Memory() { ::operator delete(buffers, kBufferAlignment); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  const HostGemmKernel& kernel;
  float* buffers;
  std::vector<const void*> rows;
};

HostGemmScratch::HostGemmScratch(HostGemmVariant variant)
    : variant_(variant), memory_(std::make_unique<Memory>(require_kernel(variant))) {}
HostGemmScratch::~HostGemmScratch() = default;
HostGemmScratch::HostGemmScratch(HostGemmScratch&&) noexcept = default;
HostGemmScratch& HostGemmScratch::operator=(HostGemmScratch&&) noexcept = default;

void host_gemm_tile(const HostGemmTile& tile, HostGemmScratch& scratch) {
  check(tile);
  if (tile.rows == 0 || tile.cols == 0) return;
  HostGemmScratch::Memory& memory = *scratch.memory_;
  const HostGemmKernel& kernel = memory.kernel;
  Part r{};
  Part c{};
  for (int64_t row = 0; row < tile.rows; row += r.size) {
    r = part_at(row, tile.rows, kernel.max_rows, kernel.row_step);
    if (tile.k > 0) find_rows(tile, row, r.size, memory.rows.data());
    for (int64_t col = 0; col < tile.cols; col += c.size) {
      c = part_at(col, tile.cols, kernel.max_cols, kernel.col_step);
      const int64_t out_offset = row * tile.out_pitch_bytes + col * size_bytes(tile.out_type);
      kernel.compute({.rows = r.size,
                      .cols = c.size,
                      .k = tile.k,
                      .a_rows = memory.rows.data(),
                      .a_type = tile.a_type,
                      .b = advance(tile.b, col * tile.b_stride_n * size_bytes(tile.b_type)),
                      .b_stride_k = tile.b_stride_k,
                      .b_stride_n = tile.b_stride_n,
                      .b_type = tile.b_type,
                      .bias = advance(tile.bias, col * size_bytes(tile.bias_type)),
                      .bias_type = tile.bias_type,
                      .out = advance(tile.out, out_offset),
                      .out_pitch_bytes = tile.out_pitch_bytes,
                      .out_type = tile.out_type},
                     memory.buffers);
    }
  }
}

}  // namespace tilewire
