// Copies of contiguous pieces by ONE thread beside other work of its CTA: a few small pieces are under way, so that little
// waits for the link at any time, and pieces may be paced. What a Walk is: see copy_ring.cuh.
#pragma once

#include "device/comm/copy_ring.cuh"
#include "device/tile/tile_form.h"

namespace tilewire {

// How a piece of a walk comes into shared memory: how many bytes complete on the barrier, and the copy. A walk whose pieces
// come in another way has a type of its own for them, `Piece`, and these two for it.
TILEWIRE_DEVICE uint32_t loaded_bytes(const CopyPiece& piece) { return piece.bytes; }
TILEWIRE_DEVICE void load_piece(const CopyPiece& piece, uint32_t to, uint32_t full) {
  ptx::bulk_load(to, piece.from, piece.bytes, full);
}

// kStages: pieces that have room. Half of them are on their way here while the others leave; a piece takes 0.9 us each way,
// so a thread moves 4.7 GB/s with two of them.
template <int32_t kStages>
class SoloCopy {
 public:
  static constexpr int32_t kPieceBytes = kCopyPieceBytes;
  static constexpr int32_t kSharedBytes = kStages * kPieceBytes + 8 * kStages;
  static_assert(kStages % 2 == 0);

  // `base`: kSharedBytes of shared memory, 128-byte aligned. `pace_clocks`: from one piece to the next, at least.
  TILEWIRE_DEVICE SoloCopy(uint32_t base, uint32_t pace_clocks) : base_(base), pace_clocks_(pace_clocks) {}

  // By one thread, before a barrier of all.
  TILEWIRE_DEVICE void init() const {
    for (uint32_t stage = 0; stage < kStages; ++stage) ptx::mbarrier_init(full(stage), 1);
  }

  // Nothing of a piece of work is left when the walk is asked for the next one: that may wait for a peer.
  template <class Walk>
  TILEWIRE_DEVICE void run(Walk walk) {
    typename Walk::Piece loading[kAhead];  // the oldest first
    uint32_t count = 0;
    for (typename Walk::Piece next; walk.next(next);) {
      // That of the piece which was in the stage before; later ones may still leave.
      ptx::bulk_wait_read<kStages - kAhead - 1>();
      load(next, stored_ + count);
      if (count == kAhead) store_oldest(loading, count);
#pragma unroll
      for (uint32_t i = 0; i < kAhead; ++i) {
        if (i == count) loading[i] = next;
      }
      ++count;
      if (!next.ends_work) continue;
      while (count > 0) store_oldest(loading, count);
      walk.finish();
    }
  }
  // Before the first piece.
  TILEWIRE_DEVICE void start_after(uint32_t clocks) { next_clock_ = clock() + clocks; }

 private:
  static constexpr uint32_t kAhead = kStages / 2;

  TILEWIRE_DEVICE uint32_t full(uint32_t stage) const { return base_ + kStages * kPieceBytes + 8 * stage; }
  TILEWIRE_DEVICE static uint32_t clock() { return static_cast<uint32_t>(::clock()); }
  template <class Piece>
  TILEWIRE_DEVICE void load(const Piece& piece, uint32_t number) {
    const uint32_t stage = number % kStages;
    while (static_cast<int32_t>(clock() - next_clock_) < 0) {
    }
    next_clock_ = clock() + pace_clocks_;
    ptx::mbarrier_arrive_expect(full(stage), loaded_bytes(piece));
    load_piece(piece, base_ + stage * kPieceBytes, full(stage));
  }
  template <class Piece>
  TILEWIRE_DEVICE void store_oldest(Piece (&loading)[kAhead], uint32_t& count) {
    const uint32_t stage = stored_ % kStages;
    while (!ptx::mbarrier_try_wait(full(stage), stored_ / kStages % 2)) {
    }
    ptx::bulk_store(loading[0].to, base_ + stage * kPieceBytes, loading[0].bytes);
    ptx::bulk_commit();
    ++stored_;
    --count;
#pragma unroll
    for (uint32_t i = 1; i < kAhead; ++i) loading[i - 1] = loading[i];
  }

  uint32_t base_;
  uint32_t pace_clocks_;
  uint32_t stored_ = 0;  // pieces
  uint32_t next_clock_ = 0;
};

}  // namespace tilewire
