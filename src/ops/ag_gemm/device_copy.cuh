// The roles that copy chunks on a GPU, push and forward: their works cut into pieces for the copy ring. The order is
// that of the roles.
#pragma once

#include "device/comm/call_gate.cuh"
#include "device/comm/copy_ring.cuh"
#include "device/comm/solo_copy.cuh"
#include "device/comm/solo_gate.cuh"
#include "ops/ag_gemm/device_parameters.cuh"

namespace tilewire::ag_gemm {

// The gates of a walk: pass() before a piece of work is begun, may_publish() when it is done. kEndsWork: that of the side
// which ends the work, and notes it.
//
// The two sides of a copy ring see the same works. The loading one waits for what each needs; when that will not come
// it marks the ring, so that the storing one publishes nothing from there on.
class LoadGate {
 public:
  static constexpr bool kEndsWork = false;

  TILEWIRE_DEVICE LoadGate(const CallSpace& space, const CopyRing& ring, int32_t role)
      : gate_(space, role, kCopyPauseNs), ring_(ring) {}

  template <class Role>
  TILEWIRE_DEVICE void pass(const Role& role, const CopyWork& w) {
    if (w.needs == 0) return;
    if (!gate_.pass_for_copies(role, w)) ring_.set_mark();
  }
  TILEWIRE_DEVICE bool may_publish() const { return false; }
  TILEWIRE_DEVICE int32_t role() const { return 0; }

 private:
  CallGate gate_;
  const CopyRing& ring_;
};

class StoreGate {
 public:
  static constexpr bool kEndsWork = true;

  TILEWIRE_DEVICE StoreGate(const CopyRing& ring, int32_t role) : ring_(ring), role_(role) {}

  template <class Role>
  TILEWIRE_DEVICE void pass(const Role&, const CopyWork&) const {}
  TILEWIRE_DEVICE bool may_publish() const { return !ring_.is_marked(); }
  TILEWIRE_DEVICE int32_t role() const { return role_; }

 private:
  const CopyRing& ring_;
  int32_t role_;
};

// Rows of the caller are copied to every receiver from where they lie: that is sooner than by way of the own gathered
// buffer, and the bytes are the same.
template <int32_t kPieceBytes, class Role, class Gate>
class CopyWalk {
 public:
  using Piece = CopyPiece;

  TILEWIRE_DEVICE CopyWalk(const FusedParameters& parameters, const CallSpace& space, const Role& role,
                           const Gate& gate)
      : p_(parameters), space_(space), role_(role), gate_(gate), trace_(space.trace(TracePlace::copies)) {}

  TILEWIRE_DEVICE bool next(CopyPiece& piece) {
    if (run_ == runs_) {
      if (!role_.next(work_)) return false;
      if (is_noted()) note_wait();
      gate_.pass(role_, work_);
      if (is_noted()) trace_.begin();
      begin_work();
    }
    const uint32_t left = run_bytes_ - at_, bytes = left < kPieceBytes ? left : kPieceBytes;
    piece = {from_ + at_, to_ + at_, bytes, false};
    at_ += bytes;
    if (at_ == run_bytes_) begin_run();
    piece.ends_work = run_ == runs_;
    return true;
  }

  TILEWIRE_DEVICE void finish() {
    if (gate_.may_publish()) space_.publish(role_.publish(work_, 0));
    if (is_noted()) trace_.end();
  }

 private:
  TILEWIRE_DEVICE bool is_noted() const { return Gate::kEndsWork && trace_.is_on(); }
  TILEWIRE_DEVICE void note_wait() const {
    trace_.wait(chunk_note(work_.chunk, p_.schedule.bytes(work_.chunk), gate_.role(),
                           work_.to == space_.frame().me ? TraceLink::copy : TraceLink::node));
  }
  TILEWIRE_DEVICE int64_t from_pitch() const {
    return work_.chunk.source == space_.frame().me ? p_.shard.pitch_bytes : p_.schedule.buffers.pitch_bytes;
  }
  // A run is contiguous on both sides: a row, or the whole chunk.
  TILEWIRE_DEVICE void begin_work() {
    const Buffers& buffers = p_.schedule.buffers;
    const int64_t gathered = buffers.gathered_offset(work_.rows.begin);
    if (work_.chunk.source == space_.frame().me) {
      const int64_t own_row = work_.rows.begin - p_.schedule.chunks.row_begin[work_.chunk.source.value];
      from_ = p_.shard.data + own_row * p_.shard.pitch_bytes;
    } else {
      from_ = space_.half(space_.frame().me) + gathered;
    }
    const auto rows = static_cast<int32_t>(work_.rows.rows());
    const bool is_contiguous = from_pitch() == buffers.pitch_bytes;
    runs_ = is_contiguous ? 1 : rows;
    run_bytes_ = static_cast<uint32_t>((is_contiguous ? rows : 1) * buffers.pitch_bytes);
    run_ = 0;
    at_ = 0;
    to_ = space_.half(work_.to) + gathered;
  }
  TILEWIRE_DEVICE void begin_run() {
    ++run_;
    at_ = 0;
    from_ += from_pitch();
    to_ += p_.schedule.buffers.pitch_bytes;
  }

  const FusedParameters& p_;
  const CallSpace& space_;
  Role role_;
  Gate gate_;
  TraceLane trace_;
  CopyWork work_;
  int32_t run_ = 0, runs_ = 0;
  uint32_t run_bytes_ = 0, at_ = 0;  // a chunk is below 2^28 bytes: CommandLimits
  const std::byte* from_ = nullptr;
  std::byte* to_ = nullptr;
};

template <int32_t kPieceBytes, class Role, class Gate>
TILEWIRE_DEVICE CopyWalk<kPieceBytes, Role, Gate> copy_walk(const FusedParameters& p, const CallSpace& space,
                                                            const Role& role, const Gate& gate) {
  return {p, space, role, gate};
}

// A CTA that copies: warp 0 loads, warp 1 stores and publishes. By all threads of the CTA.
template <class Role>
TILEWIRE_DEVICE void run_copies(const FusedParameters& p, const CallSpace& space, const CopyRing& ring,
                                const Role& role, int32_t number) {
  constexpr int32_t kBytes = CopyRing::kPieceBytes;
  if (threadIdx.x == 0) ring.load(copy_walk<kBytes>(p, space, role, LoadGate(space, ring, number)));
  if (threadIdx.x == 32) ring.store(copy_walk<kBytes>(p, space, role, StoreGate(ring, number)));
}

// By one thread.
template <int32_t kStages, class Role>
TILEWIRE_DEVICE void run_copies_alone(const FusedParameters& p, const CallSpace& space, SoloCopy<kStages>& copy,
                                      const Role& role, int32_t number) {
  copy.run(copy_walk<kCopyPieceBytes>(p, space, role, SoloGate(space, number)));
}

}  // namespace tilewire::ag_gemm
