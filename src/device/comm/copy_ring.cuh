// Copies of contiguous pieces through shared memory by the copy engine, into this GPU or a peer: one thread loads, one
// stores, kStages pieces are under way. Both walk the same pieces.
//
// A Walk has
//   bool next(CopyPiece&)     the next piece, false at the end
//   void finish()             by the storing thread, after it has issued a piece that `ends_work`: publish what is
//                             complete now (publish() waits for the thread's copies)
#pragma once

#include "device/ptx/cluster.cuh"
#include "device/ptx/tma.cuh"
#include "device/sync/pipeline.cuh"

#include <cstddef>

namespace tilewire {

// Addresses and size are multiples of 16.
struct CopyPiece {
  const std::byte* from;
  std::byte* to;
  uint32_t bytes;
  bool ends_work;
};

class CopyRing {
 public:
  static constexpr int32_t kStages = 12;
  static constexpr int32_t kPieceBytes = 16384;
  static constexpr int32_t kSharedBytes = kStages * kPieceBytes + PipelineBarriers<kStages>::kBytes + 16;

  // `base`: kSharedBytes of shared memory, 128-byte aligned.
  TILEWIRE_DEVICE explicit CopyRing(const void* base) : base_(ptx::shared_address(base)) {}

  // By one thread, before a barrier of both.
  TILEWIRE_DEVICE void init() const {
    barriers().init(1);
    ptx::store_shared(mark(), 0);
  }

  // Set by the loading thread before a piece that must not be passed on; the storing one sees it when it has waited for
  // that piece.
  TILEWIRE_DEVICE void set_mark() const { ptx::store_shared(mark(), 1); }
  TILEWIRE_DEVICE bool is_marked() const { return ptx::load_shared(mark()) != 0; }

  template <class Walk>
  TILEWIRE_DEVICE void load(Walk walk) const {
    PipelineProducer<kStages> pipe(barriers());
    for (CopyPiece piece; walk.next(piece);) {
      const auto slot = pipe.acquire(piece.bytes);
      ptx::bulk_load(stage(slot.stage), piece.from, piece.bytes, slot.full);
      pipe.commit();
    }
  }

  // By lane 0 of a warp. A stage is given back when at most kReading later stores may still read theirs.
  template <class Walk>
  TILEWIRE_DEVICE void store(Walk walk) const {
    PipelineConsumer<kStages> pipe(barriers());
    int32_t held = 0;
    for (CopyPiece piece; walk.next(piece);) {
      ptx::bulk_store(piece.to, stage(pipe.wait()), piece.bytes);
      ptx::bulk_commit();
      if (held == kReading) {
        ptx::bulk_wait_read<kReading>();
        pipe.release();
      } else {
        ++held;
      }
      if (piece.ends_work) walk.finish();
    }
    ptx::bulk_wait<0>();
  }

 private:
  static constexpr int32_t kReading = kStages / 2;

  TILEWIRE_DEVICE uint32_t stage(uint32_t stage) const { return base_ + stage * kPieceBytes; }
  TILEWIRE_DEVICE PipelineBarriers<kStages> barriers() const { return {base_ + kStages * kPieceBytes}; }

  TILEWIRE_DEVICE uint32_t mark() const { return base_ + kStages * kPieceBytes + PipelineBarriers<kStages>::kBytes; }

  uint32_t base_;
};

}  // namespace tilewire
