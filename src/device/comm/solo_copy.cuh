// Copies of contiguous pieces by ONE thread beside other work of its CTA: two small pieces are under way, so that little
// waits for the link at any time, and pieces may be paced. What a Walk is: see copy_ring.cuh.
#pragma once

#include "device/comm/copy_ring.cuh"

namespace tilewire {

// How a piece of a walk comes into shared memory: how many bytes complete on the barrier, and the copy. A walk whose pieces
// come in another way has a type of its own for them, `Piece`, and these two for it.
TILEWIRE_DEVICE uint32_t loaded_bytes(const CopyPiece& piece) { return piece.bytes; }
TILEWIRE_DEVICE void load_piece(const CopyPiece& piece, uint32_t to, uint32_t full) {
  ptx::bulk_load(to, piece.from, piece.bytes, full);
}

class SoloCopy {
 public:
  static constexpr int32_t kPieceBytes = 4096;
  static constexpr int32_t kSharedBytes = 2 * kPieceBytes + 16;

  // `base`: kSharedBytes of shared memory, 128-byte aligned. `pace_clocks`: from one piece to the next, at least.
  TILEWIRE_DEVICE SoloCopy(uint32_t base, uint32_t pace_clocks) : base_(base), pace_clocks_(pace_clocks) {}

  // By one thread, before a barrier of all.
  TILEWIRE_DEVICE void init() const {
    for (uint32_t stage = 0; stage < 2; ++stage) ptx::mbarrier_init(full(stage), 1);
  }

  // Nothing of a piece of work is left when the walk is asked for the next one: that may wait for a peer.
  template <class Walk>
  TILEWIRE_DEVICE void run(Walk walk) {
    typename Walk::Piece now;
    bool is_loading = false;
    for (typename Walk::Piece ahead; walk.next(ahead);) {
      ptx::bulk_wait_read<0>();
      load(ahead, stored_ + is_loading);
      if (is_loading) store(now);
      now = ahead;
      is_loading = !now.ends_work;
      if (is_loading) continue;
      store(now);
      walk.finish();
    }
  }
  // Before the first piece.
  TILEWIRE_DEVICE void start_after(uint32_t clocks) { next_clock_ = clock() + clocks; }

 private:
  TILEWIRE_DEVICE uint32_t full(uint32_t stage) const { return base_ + 2 * kPieceBytes + 8 * stage; }
  TILEWIRE_DEVICE static uint32_t clock() { return static_cast<uint32_t>(::clock()); }
  template <class Piece>
  TILEWIRE_DEVICE void load(const Piece& piece, uint32_t number) {
    const uint32_t stage = number % 2;
    while (static_cast<int32_t>(clock() - next_clock_) < 0) {
    }
    next_clock_ = clock() + pace_clocks_;
    ptx::mbarrier_arrive_expect(full(stage), loaded_bytes(piece));
    load_piece(piece, base_ + stage * kPieceBytes, full(stage));
  }
  template <class Piece>
  TILEWIRE_DEVICE void store(const Piece& piece) {
    const uint32_t stage = stored_ % 2;
    while (!ptx::mbarrier_try_wait(full(stage), stored_ / 2 % 2)) {
    }
    ptx::bulk_store(piece.to, base_ + stage * kPieceBytes, piece.bytes);
    ptx::bulk_commit();
    ++stored_;
  }

  uint32_t base_;
  uint32_t pace_clocks_;
  uint32_t stored_ = 0;  // pieces
  uint32_t next_clock_ = 0;
};

}  // namespace tilewire
