// The epilogue of a warpgroup: accumulators to 16 bits, through a swizzled box in shared memory, to the output. Two
// boxes alternate, and a store is not waited for until its box is needed again.
#pragma once

#include "device/ptx/control.cuh"
#include "device/ptx/memory_order.cuh"
#include "device/ptx/stmatrix.cuh"
#include "device/ptx/tma.cuh"
#include "device/tile/shared_tiles.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>
#include <type_traits>

namespace tilewire {

// Named barriers of a tile kernel; 0 is __syncthreads.
constexpr uint32_t kStoreBarrier = 1;  // and 2: one a computing warpgroup
constexpr uint32_t kTurnBarrier = 3;   // and 4

template <class Element>
TILEWIRE_DEVICE uint32_t pack_pair(float low, float high) {
  uint32_t bits;
  if constexpr (std::is_same_v<Element, __nv_bfloat16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    memcpy(&bits, &pair, sizeof(bits));
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    memcpy(&bits, &pair, sizeof(bits));
  }
  return bits;
}

// What is added to sums before they are rounded, one value a column: nothing.
struct PlainEpilogue {
  static constexpr bool kMayAdd = false;
  template <class Work>
  TILEWIRE_DEVICE bool adds(const Work&) const {
    return false;
  }
  template <class Work>
  TILEWIRE_DEVICE float addend(const Work&, int32_t) const {
    return 0;
  }
};

template <class Config, class Epilogue>
class TileStore {
 public:
  using Form = typename Config::Form;
  using Plan = FormPlan<Form>;
  static constexpr int32_t kBoxesPerBlock = Form::kCols / Form::kBoxCols;

  TILEWIRE_DEVICE TileStore(const SharedTiles<Form>& shared, uint32_t group) : shared_(shared), group_(group) {}

  // Before the blocks of a tile whose first column is `col`. They are read behind the barrier of the first box.
  template <class Work>
  TILEWIRE_DEVICE void stage_addends(const Epilogue& epilogue, const Work& w, int32_t col) {
    if constexpr (Epilogue::kMayAdd) {
      adds_ = epilogue.adds(w);
      if (!adds_) return;
      for (int32_t i = static_cast<int32_t>(threadIdx.x % kWarpgroupThreads); i < Form::kCols; i += kWarpgroupThreads) {
        ptx::store_shared_float(shared_.addends(group_) + 4 * i, epilogue.addend(w, col + i));
      }
    }
  }

  // One block of 64 rows whose first element belongs at `at`. Past the edges of the output nothing is written. `mark`:
  // bits that are set in every pair of values.
  TILEWIRE_DEVICE void store_block(const float (&block)[Form::kCols / 2], const CUtensorMap* map, TileOrigin at,
                                   uint32_t mark) {
    if (Epilogue::kMayAdd && adds_) {
      store_boxes<true>(block, map, at, mark);
    } else {
      store_boxes<false>(block, map, at, mark);
    }
  }

  // Before the shared memory goes away.
  TILEWIRE_DEVICE void finish() const {
    if (is_leader()) ptx::bulk_wait_read<0>();
  }

 private:
  TILEWIRE_DEVICE static bool is_leader() { return threadIdx.x % kWarpgroupThreads == 0; }

  template <bool kAdds>
  TILEWIRE_DEVICE void store_boxes(const float (&block)[Form::kCols / 2], const CUtensorMap* map, TileOrigin at,
                                   uint32_t mark) {
#pragma unroll
    for (int32_t i = 0; i < kBoxesPerBlock; ++i) {
      store_box<kAdds>(&block[i * Form::kBoxCols / 2], map, {at.row, at.col + i * Form::kBoxCols}, mark,
                       i * Form::kBoxCols);
    }
  }
  template <bool kAdds>
  TILEWIRE_DEVICE void store_box(const float* values, const CUtensorMap* map, TileOrigin at, uint32_t mark,
                                 uint32_t tile_col) {
    const uint32_t box = shared_.box(group_, next_box_);
    next_box_ ^= 1;
    if (is_leader()) ptx::bulk_wait_read<Plan::kBoxes - 1>();
    ptx::named_barrier_sync(kStoreBarrier + group_, kWarpgroupThreads);
    const uint32_t lane = threadIdx.x % 32, row = threadIdx.x % kWarpgroupThreads / 32 * 16 + lane % 16;
    const uint32_t swizzle = Form::kBoxCols == 64 ? row % 8 : row / 2 % 4;
    const uint32_t line = box + row * Form::kBoxCols * kElementBytes;
#pragma unroll
    for (uint32_t i = 0; i < Form::kBoxCols / 16; ++i) {
      float v[8];  // two columns of every eight, in two rows
#pragma unroll
      for (int32_t j = 0; j < 8; ++j) v[j] = values[8 * i + j];
      const uint32_t col = tile_col + 16 * i + lane % 4 * 2;
      if constexpr (kAdds) {
        add(col, v[0], v[1], v[2], v[3]);
        add(col + 8, v[4], v[5], v[6], v[7]);
      }
      ptx::stmatrix_x4(line + ((2 * i + lane / 16) ^ swizzle) * 16, pack(v[0], v[1]) | mark, pack(v[2], v[3]) | mark,
                       pack(v[4], v[5]) | mark, pack(v[6], v[7]) | mark);
    }
    ptx::fence_async_shared();
    ptx::named_barrier_sync(kStoreBarrier + group_, kWarpgroupThreads);
    if (is_leader()) {
      ptx::tma_store(map, box, at.col, at.row);
      ptx::bulk_commit();
    }
  }
  // To values of column `col` of the tile and of the one behind it, in two rows.
  TILEWIRE_DEVICE void add(uint32_t col, float& low, float& high, float& low_too, float& high_too) const {
    const float2 addends = ptx::load_shared_pair(shared_.addends(group_) + 4 * col);
    low += addends.x;
    high += addends.y;
    low_too += addends.x;
    high_too += addends.y;
  }
  TILEWIRE_DEVICE static uint32_t pack(float low, float high) { return pack_pair<typename Config::Element>(low, high); }

  const SharedTiles<Form>& shared_;
  uint32_t group_;
  uint32_t next_box_ = 0;
  bool adds_ = false;
};

}  // namespace tilewire
