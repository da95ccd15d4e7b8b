// The epilogue of a warpgroup: accumulators to the type of the output, through a swizzled box in shared memory, to the
// output. Two boxes alternate, and a store is not waited for until its box is needed again.
#pragma once

#include "device/ptx/control.cuh"
#include "device/ptx/memory_order.cuh"
#include "device/ptx/stmatrix.cuh"
#include "device/ptx/tma.cuh"
#include "device/tile/number_pairs.cuh"
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
using OtherNarrow = std::conditional_t<std::is_same_v<Element, __half>, __nv_bfloat16, __half>;

// What is added to sums before they are rounded, one value a column, and to which type they are: nothing, and that of the
// operands. kMayAdd, kMayConvert: whether the kernel asks adds() and out(). Where out() is another type something is
// added always: kNothingAdded where there is nothing.
constexpr float kNothingAdded = -0.0F;  // which also leaves zeros as they are

struct PlainEpilogue {
  static constexpr bool kMayAdd = false;
  static constexpr bool kMayConvert = false;
  TILEWIRE_DEVICE static OutType out() { return OutType::as_operands; }
  template <class Work>
  TILEWIRE_DEVICE bool adds(const Work&) const {
    return false;
  }
  template <class Work>
  TILEWIRE_DEVICE float addend(const Work&, int32_t) const {
    return 0;
  }
};

// A target that all threads of the warpgroup store to, instead of one by the copy engine (see MatrixTarget):
//   begin(at)        before the first box of a tile; what it writes to shared memory store() may read
//   store(box, at)
template <class Target>
concept IsStoredByGroup = requires(Target& target, TileOrigin at) {
  target.begin(at);
};

template <class Config, class Epilogue>
class TileStore {
 public:
  using Form = typename Config::Form;
  using Plan = FormPlan<Form>;
  static constexpr int32_t kBoxesPerBlock = Form::kCols / Form::kBoxCols;

  TILEWIRE_DEVICE TileStore(const SharedTiles<Form>& shared, uint32_t group) : shared_(shared), group_(group) {}

  // Before the blocks of a tile whose first column is `col`. What is added is read behind the barrier of the first box.
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
  // bits that are set in every pair of narrow values, and in every wide one.
  // `target`: as MatrixTarget.
  template <class Target>
  TILEWIRE_DEVICE void store_block(const Epilogue& epilogue, const float (&block)[Form::kCols / 2],
                                   const Target& target, TileOrigin at, uint32_t mark) {
    if (Epilogue::kMayConvert && epilogue.out() == OutType::fp32) {
      store_wide_boxes(block, target, at, mark);
    } else if (Epilogue::kMayAdd && adds_) {
      store_boxes<true>(block, target, at, mark, epilogue.out() == OutType::other_narrow);
    } else {
      store_boxes<false>(block, target, at, mark, false);
    }
  }

  // Before all of it: `at` as that of the tile.
  template <class Target>
  TILEWIRE_DEVICE void begin_tile(Target& target, TileOrigin at) const {
    if constexpr (IsStoredByGroup<Target>) {
      ptx::named_barrier_sync(kStoreBarrier + group_, kWarpgroupThreads);  // the tile before has been stored
      target.begin(at);
    }
  }

  // Behind the blocks of a tile.
  template <class Target>
  TILEWIRE_DEVICE void finish_tile(const Target& target, uint32_t mark) const {
    if constexpr (!IsStoredByGroup<Target>) {
      if (is_leader()) target.finish(mark);
    }
  }

  // Before the shared memory goes away.
  TILEWIRE_DEVICE void finish() const {
    if (is_leader()) ptx::bulk_wait_read<0>();
  }

 private:
  TILEWIRE_DEVICE static bool is_leader() { return threadIdx.x % kWarpgroupThreads == 0; }

  // A box that was read by the copy before the last one, for all threads of the group.
  TILEWIRE_DEVICE uint32_t next_box() {
    const uint32_t box = shared_.box(group_, next_box_);
    next_box_ ^= 1;
    if (is_leader()) ptx::bulk_wait_read<Plan::kBoxes - 1>();
    ptx::named_barrier_sync(kStoreBarrier + group_, kWarpgroupThreads);
    return box;
  }
  template <class Target>
  TILEWIRE_DEVICE void copy_out(uint32_t box, const Target& target, TileOrigin at) const {
    if constexpr (IsStoredByGroup<Target>) {
      ptx::named_barrier_sync(kStoreBarrier + group_, kWarpgroupThreads);
      target.store(box, at);
    } else {
      ptx::fence_async_shared();
      ptx::named_barrier_sync(kStoreBarrier + group_, kWarpgroupThreads);
      if (!is_leader()) return;
      target.store(box, at);
      ptx::bulk_commit();
    }
  }
  // What pieces of 16 bytes of a line of a box are mixed up by.
  TILEWIRE_DEVICE static uint32_t swizzle_of(uint32_t row) { return Form::kBoxCols == 64 ? row % 8 : row / 2 % 4; }
  static constexpr uint32_t kLineBytes = Form::kBoxCols * kElementBytes;

  template <bool kAdds, class Target>
  TILEWIRE_DEVICE void store_boxes(const float (&block)[Form::kCols / 2], const Target& target, TileOrigin at,
                                   uint32_t mark, bool is_other) {
#pragma unroll
    for (int32_t i = 0; i < kBoxesPerBlock; ++i) {
      store_box<kAdds>(&block[i * Form::kBoxCols / 2], target, {at.row, at.col + i * Form::kBoxCols}, mark,
                       i * Form::kBoxCols, is_other);
    }
  }
  template <bool kAdds, class Target>
  TILEWIRE_DEVICE void store_box(const float* values, const Target& target, TileOrigin at, uint32_t mark,
                                 uint32_t tile_col, bool is_other) {
    const uint32_t box = next_box();
    const uint32_t lane = threadIdx.x % 32, row = threadIdx.x % kWarpgroupThreads / 32 * 16 + lane % 16;
    const uint32_t swizzle = swizzle_of(row);
    const uint32_t line = box + row * kLineBytes;
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
      ptx::stmatrix_x4(line + ((2 * i + lane / 16) ^ swizzle) * 16, pack<kAdds>(v[0], v[1], is_other) | mark,
                       pack<kAdds>(v[2], v[3], is_other) | mark, pack<kAdds>(v[4], v[5], is_other) | mark,
                       pack<kAdds>(v[6], v[7], is_other) | mark);
    }
    copy_out(box, target, at);
  }

  template <class Target>
  TILEWIRE_DEVICE void store_wide_boxes(const float (&block)[Form::kCols / 2], const Target& target, TileOrigin at,
                                        uint32_t mark) {
    constexpr int32_t kWideCols = Form::kBoxCols / 2;
#pragma unroll
    for (int32_t i = 0; i < 2 * kBoxesPerBlock; ++i) {
      store_wide_box(&block[i * kWideCols / 2], target, {at.row, at.col + i * kWideCols}, mark, i * kWideCols);
    }
  }
  // Pairs of columns as the threads have them: of every eight, in rows that are eight apart. Where a thread is it finds
  // out for each box, which leaves the registers to the sums.
  template <class Target>
  TILEWIRE_DEVICE void store_wide_box(const float* values, const Target& target, TileOrigin at, uint32_t mark,
                                      uint32_t tile_col) {
    const uint32_t box = next_box();
    const uint32_t thread = ptx::thread_anew();
    const uint32_t lane = thread % 32, row = thread % kWarpgroupThreads / 32 * 16 + lane / 4;
    const uint32_t first = box + row * kLineBytes + ((lane % 4 / 2) ^ swizzle_of(row)) * 16 + lane % 2 * 8;
#pragma unroll
    for (uint32_t i = 0; i < Form::kBoxCols / 16; ++i) {
      float v[4];
#pragma unroll
      for (int32_t j = 0; j < 4; ++j) v[j] = values[4 * i + j];
      add(tile_col + 8 * i + lane % 4 * 2, v[0], v[1], v[2], v[3]);
      const uint32_t to = first ^ (32 * i);  // two pieces on, mixed up
      ptx::store_shared_pair(to, __float_as_uint(v[0]) | mark, __float_as_uint(v[1]) | mark);
      ptx::store_shared_pair(to + 8 * kLineBytes, __float_as_uint(v[2]) | mark, __float_as_uint(v[3]) | mark);
    }
    copy_out(box, target, at);
  }
  template <bool kMayBeOther>
  TILEWIRE_DEVICE static uint32_t pack(float low, float high, bool is_other) {
    using Element = typename Config::Element;
    const uint32_t bits = pack_pair<Element>(low, high);
    if constexpr (!kMayBeOther || !Epilogue::kMayConvert) return bits;
    return is_other ? pack_pair<OtherNarrow<Element>>(low, high) : bits;
  }
  // To values of column `col` of the tile and of the one behind it, in two rows.
  TILEWIRE_DEVICE void add(uint32_t col, float& low, float& high, float& low_too, float& high_too) const {
    const float2 addends = ptx::load_shared_pair(shared_.addends(group_) + 4 * col);
    low += addends.x;
    high += addends.y;
    low_too += addends.x;
    high_too += addends.y;
  }

  const SharedTiles<Form>& shared_;
  uint32_t group_;
  uint32_t next_box_ = 0;
  bool adds_ = false;
};

}  // namespace tilewire
