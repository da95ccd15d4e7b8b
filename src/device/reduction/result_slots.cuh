// Finished chunks on their way to other ranks: into slots, from slot to slot, and from a slot into the caller's result. By
// warps; a chunk lies in a slot as rows that begin on 16 bytes.
#pragma once

#include "device/reduction/sum_warps.cuh"

namespace tilewire {

// Numbers of a row of `cols`, cleared behind the last one, into a slot's row that begins at `row`.
template <int kCount>
TILEWIRE_DEVICE void store_in_slot(std::byte* row, const NumberPlace& p, int32_t cols, const Numbers<kCount>& n,
                                   DataType type) {
  std::byte* to = row + p.col * bytes_of(type);
  if (kCount == 8 && type == DataType::fp32) {
    *reinterpret_cast<float4*>(to) = {n.v[0], n.v[1], n.v[2], n.v[3]};
    if (p.count > 4)
      reinterpret_cast<float4*>(to)[1] = {n.v[kCount - 4], n.v[kCount - 3], n.v[kCount - 2], n.v[kCount - 1]};
    return;
  }
  store_numbers(to, n, type);
  const bool ends_in_the_middle = kCount == 4 && type != DataType::fp32 && p.col % 8 == 0 && p.col + 4 >= cols;
  if (ends_in_the_middle) *reinterpret_cast<uint2*>(to + 8) = {0, 0};
}

// This warp's part of `bytes`, a multiple of 16, from one slot to another, which may be a peer's.
TILEWIRE_DEVICE void copy_slot(std::byte* to, const std::byte* from, int64_t bytes, const SumTeam& team) {
  constexpr int32_t kAtOnce = 8;
  const auto pieces = static_cast<int32_t>(bytes / 16);  // a chunk is below 2^28 bytes: CommandLimits
  const int32_t step = team.parts * 32;
  for (int32_t first = team.part * 32 + static_cast<int32_t>(threadIdx.x % 32); first < pieces;
       first += kAtOnce * step) {
    uint4 raw[kAtOnce];
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i) {
      if (first + i * step < pieces) raw[i] = load_16_bytes(from + int64_t{first + i * step} * 16);
    }
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i) {
      if (first + i * step < pieces) *reinterpret_cast<uint4*>(to + int64_t{first + i * step} * 16) = raw[i];
    }
  }
}

// Bits of neighbouring numbers, `count` of the result's type, into its row.
TILEWIRE_DEVICE void store_bits(const ResultView& r, int32_t row, int32_t col, int32_t count, const uint4& raw) {
  const int32_t element = bytes_of(r.out_type);
  std::byte* to = r.out + row * r.out_pitch_bytes + int64_t{col} * element;
  if (r.is_aligned && count * element == 16) {
    *reinterpret_cast<uint4*>(to) = raw;
    return;
  }
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int32_t i = 0; i < 8; ++i) {
    if (i >= count) break;
    if (r.out_type == DataType::fp32) {
      if (i < 4) reinterpret_cast<uint32_t*>(to)[i] = words[i % 4];
    } else {
      reinterpret_cast<uint16_t*>(to)[i] = static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16));
    }
  }
}

// This warp's part of a chunk that lies in `slot`, whose rows are pitch_bytes apart, into the result, of which
// (row, col) is its first element. With is_here = false the result is NaN.
TILEWIRE_DEVICE void collect_chunk(const std::byte* slot, int32_t pitch_bytes, const ResultView& result, int32_t rows,
                                   int32_t cols, int32_t row, int32_t col, const SumTeam& team, bool is_here) {
  constexpr int32_t kAtOnce = 8;
  constexpr uint4 kNan = {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff};
  const int32_t element = bytes_of(result.out_type), run = 16 / element;
  for (PlaceWalk walk(rows, cols, run, team, static_cast<int32_t>(threadIdx.x % 32)); walk.has_next();) {
    NumberPlace places[kAtOnce];
    uint4 raw[kAtOnce];
    places[0] = walk.next();
#pragma unroll
    for (int32_t i = 1; i < kAtOnce; ++i) places[i] = walk.has_next() ? walk.next() : places[0];
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i) {
      raw[i] = is_here ? load_16_bytes(slot + (places[i].row * pitch_bytes + places[i].col * element)) : kNan;
    }
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i) {
      store_bits(result, row + places[i].row, col + places[i].col, places[i].count, raw[i]);
    }
  }
}

}  // namespace tilewire
