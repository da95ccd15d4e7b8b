// The push role on a GPU: chunks of the caller's shard, cut into pieces for the copy ring. The order is PushRole's.
#pragma once

#include "device/comm/call_view.cuh"
#include "device/comm/copy_ring.cuh"
#include "ops/ag_gemm/device_parameters.cuh"

namespace tilewire::ag_gemm {

// Rows of the caller are copied to every receiver from where they lie: that is sooner than by way of the own gathered
// buffer, and the bytes are the same.
class PushWalk {
 public:
  TILEWIRE_DEVICE PushWalk(const Schedule& schedule, const CallSpace& space, const DeviceShard& shard, int32_t worker)
      : schedule_(schedule), space_(space), shard_(shard), role_(schedule, worker) {}

  TILEWIRE_DEVICE bool next(CopyPiece& piece) {
    if (run_ == runs_) {
      if (!role_.next(work_)) return false;
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

  TILEWIRE_DEVICE void finish() const { space_.publish(role_.publish(work_, 0)); }

 private:
  // A run is contiguous on both sides: a row, or the whole chunk.
  TILEWIRE_DEVICE void begin_work() {
    const Buffers& buffers = schedule_.buffers;
    const int64_t own_row = work_.rows.begin - schedule_.chunks.row_begin[schedule_.me().value];
    const bool is_contiguous = shard_.pitch_bytes == buffers.pitch_bytes;
    runs_ = is_contiguous ? 1 : work_.rows.rows();
    run_bytes_ = is_contiguous ? work_.rows.rows() * buffers.pitch_bytes : buffers.pitch_bytes;
    run_ = 0;
    at_ = 0;
    from_ = shard_.data + own_row * shard_.pitch_bytes;
    to_ = space_.half(work_.to) + buffers.gathered_offset(work_.rows.begin);
  }
  TILEWIRE_DEVICE void begin_run() {
    ++run_;
    at_ = 0;
    from_ += shard_.pitch_bytes;
    to_ += schedule_.buffers.pitch_bytes;
  }

  const Schedule& schedule_;
  CallSpace space_;
  const DeviceShard& shard_;
  PushRole role_;
  CopyWork work_;
  int64_t run_ = 0, runs_ = 0;
  int64_t run_bytes_ = 0, at_ = 0;
  const std::byte* from_ = nullptr;
  std::byte* to_ = nullptr;
};

}  // namespace tilewire::ag_gemm
