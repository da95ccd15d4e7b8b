// The roles that copy chunks on a GPU, push and forward: their works cut into pieces for the copy ring. The order is
// that of the roles.
#pragma once

#include "device/comm/call_gate.cuh"
#include "device/comm/copy_ring.cuh"
#include "ops/ag_gemm/device_parameters.cuh"

namespace tilewire::ag_gemm {

// The two sides of a copy ring see the same works. The loading one waits for what each needs; when that will not come
// it marks the ring, so that the storing one publishes nothing from there on.
class LoadGate {
 public:
  TILEWIRE_DEVICE LoadGate(const CallSpace& space, const CopyRing& ring, int32_t role)
      : gate_(space, role), ring_(ring) {}

  template <class Role>
  TILEWIRE_DEVICE void pass(const Role& role, const CopyWork& w) {
    if (w.needs == 0) return;
    if (!gate_.pass_alone(role, w)) ring_.set_mark();
    ptx::fence_async_global();
  }

 private:
  CallGate gate_;
  const CopyRing& ring_;
};

class StoreGate {
 public:
  template <class Role>
  TILEWIRE_DEVICE void pass(const Role&, const CopyWork&) const {}
};

// Rows of the caller are copied to every receiver from where they lie: that is sooner than by way of the own gathered
// buffer, and the bytes are the same.
template <class Role, class Gate>
class CopyWalk {
 public:
  TILEWIRE_DEVICE CopyWalk(const FusedParameters& parameters, const CallSpace& space, const CopyRing& ring,
                           const Role& role, const Gate& gate)
      : p_(parameters), space_(space), ring_(ring), role_(role), gate_(gate) {}

  TILEWIRE_DEVICE bool next(CopyPiece& piece) {
    if (run_ == runs_) {
      if (!role_.next(work_)) return false;
      gate_.pass(role_, work_);
      begin_work();
    }
    const int64_t left = run_bytes_ - at_;
    const uint32_t bytes = static_cast<uint32_t>(left < CopyRing::kPieceBytes ? left : CopyRing::kPieceBytes);
    piece = {from_ + at_, to_ + at_, bytes, false};
    at_ += bytes;
    if (at_ == run_bytes_) begin_run();
    piece.ends_work = run_ == runs_;
    return true;
  }

  TILEWIRE_DEVICE void finish() const {
    if (!ring_.is_marked()) space_.publish(role_.publish(work_, 0));
  }

 private:
  // A run is contiguous on both sides: a row, or the whole chunk.
  TILEWIRE_DEVICE void begin_work() {
    const Buffers& buffers = p_.schedule.buffers;
    const int64_t gathered = buffers.gathered_offset(work_.rows.begin);
    from_ = space_.half(space_.frame().me) + gathered;
    from_pitch_ = buffers.pitch_bytes;
    if (work_.chunk.source == space_.frame().me) {
      from_pitch_ = p_.shard.pitch_bytes;
      from_ = p_.shard.data + (work_.rows.begin - p_.schedule.chunks.row_begin[work_.chunk.source.value]) * from_pitch_;
    }
    const bool is_contiguous = from_pitch_ == buffers.pitch_bytes;
    runs_ = is_contiguous ? 1 : work_.rows.rows();
    run_bytes_ = is_contiguous ? work_.rows.rows() * buffers.pitch_bytes : buffers.pitch_bytes;
    run_ = 0;
    at_ = 0;
    to_ = space_.half(work_.to) + gathered;
  }
  TILEWIRE_DEVICE void begin_run() {
    ++run_;
    at_ = 0;
    from_ += from_pitch_;
    to_ += p_.schedule.buffers.pitch_bytes;
  }

  const FusedParameters& p_;
  const CallSpace& space_;
  const CopyRing& ring_;
  Role role_;
  Gate gate_;
  CopyWork work_;
  int64_t run_ = 0, runs_ = 0;
  int64_t run_bytes_ = 0, at_ = 0, from_pitch_ = 0;
  const std::byte* from_ = nullptr;
  std::byte* to_ = nullptr;
};

// A CTA that copies: warp 0 loads, warp 1 stores and publishes. By all threads of the CTA.
template <class Role>
TILEWIRE_DEVICE void run_copies(const FusedParameters& p, const CallSpace& space, const CopyRing& ring,
                                const Role& role, int32_t number) {
  if (threadIdx.x == 0) ring.load(CopyWalk(p, space, ring, role, LoadGate(space, ring, number)));
  if (threadIdx.x == 32) ring.store(CopyWalk(p, space, ring, role, StoreGate{}));
}

}  // namespace tilewire::ag_gemm
