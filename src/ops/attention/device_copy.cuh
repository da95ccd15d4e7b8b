// The roles that copy chunks on a GPU, each by one thread of many: load, push and forward. A thread has every so many of a
// role's works; their order is that of the role, so that what a work waits for is before it whoever does it.
#pragma once

#include "device/comm/solo_copy.cuh"
#include "device/comm/solo_gate.cuh"
#include "ops/attention/device_parameters.cuh"
#include "ops/attention/roles.h"

#include <type_traits>

namespace tilewire::attention {

template <class Role>
class SharedOutRole {
 public:
  using Work = typename Role::Work;
  // `by_unit`: a thread has all of every so many units, and so the word behind them; for forward alone.
  TILEWIRE_DEVICE SharedOutRole(const Role& role, int32_t worker, int32_t workers, bool by_unit)
      : role_(role), worker_(worker), workers_(workers), by_unit_(by_unit) {}

  TILEWIRE_DEVICE bool next(Work& w) {
    while (role_.next(w)) {
      int32_t dealt = number_++;
      if constexpr (requires { w.unit; }) dealt = by_unit_ ? w.unit : dealt;
      if (dealt % workers_ == worker_) return true;
    }
    return false;
  }
  TILEWIRE_DEVICE Need need(const Work& w, int32_t i) const { return role_.need(w, i); }
  TILEWIRE_DEVICE Publish publish(const Work& w, int32_t i) const { return role_.publish(w, i); }

 private:
  Role role_;
  int32_t worker_, workers_, number_ = 0;
  bool by_unit_;
};

// Some lines of the caller's keys or values, whose rows lie apart.
struct LinePiece {
  const CUtensorMap* map;
  int32_t row, head, batch;
  std::byte* to;
  uint32_t bytes;
  bool ends_work;
};
// A box is always whole: past the last row there are zeros, which are not stored.
TILEWIRE_DEVICE uint32_t loaded_bytes(const LinePiece&) { return kCopyPieceBytes; }
TILEWIRE_DEVICE void load_piece(const LinePiece& piece, uint32_t to, uint32_t full) {
  ptx::tma_load(to, piece.map, full, 0, piece.row, piece.head, piece.batch);
}

// Whether anybody but this rank needs a chunk of its own.
TILEWIRE_DEVICE bool goes_out(const Schedule& s, ChunkRef c) {
  for (int32_t r = 0; r < s.ranks(); ++r) {
    if (r != s.me().value && s.wants(Rank{r}, c)) return true;
  }
  return false;
}

// What of a chunk is copied, and where.
struct ChunkMove {
  ChunkRef chunk;
  Rank to;
  bool has_bytes;
};
TILEWIRE_DEVICE ChunkMove move_of(const Schedule& s, const LoadWork& w) {
  return {w.chunk, s.me(), s.frame.has_network() && goes_out(s, w.chunk)};
}
TILEWIRE_DEVICE ChunkMove move_of(const Schedule&, const CopyWork& w) { return {w.chunk, w.to, !w.is_end}; }

// Works cut into pieces. Own chunks (kIsOwn) go to every receiver from where the caller has them; through the own buffer,
// where load puts them, they go to other nodes alone. Others are where they came in.
template <class Role, bool kIsOwn>
class ChunkWalk {
 public:
  using Piece = std::conditional_t<kIsOwn, LinePiece, CopyPiece>;

  TILEWIRE_DEVICE ChunkWalk(const FusedParameters& p, const CallSpace& space, const Role& role, int32_t number)
      : p_(p), space_(space), role_(role), gate_(space, number), trace_(space.trace(TracePlace::copies)) {}

  TILEWIRE_DEVICE bool next(Piece& piece) {
    while (at_ == bytes_) {
      if (!role_.next(work_)) return false;
      const ChunkMove move = move_of(p_.schedule, work_);
      note_wait(move);
      gate_.pass(role_, work_);
      if (trace_.is_on()) trace_.begin();
      begin(move);
      if (bytes_ == 0) finish();
    }
    give(piece);
    return true;
  }
  TILEWIRE_DEVICE void finish() {
    if (gate_.may_publish()) {
      for (int32_t i = 0; i < work_.publishes; ++i) space_.publish(role_.publish(work_, i));
    }
    if (trace_.is_on()) trace_.end();
  }

 private:
  TILEWIRE_DEVICE void note_wait(const ChunkMove& move) const {
    if (!trace_.is_on()) return;
    trace_.wait(chunk_note(move.chunk, move.has_bytes ? p_.schedule.bytes(move.chunk) : 0, gate_.role(),
                           move.to == space_.frame().me ? TraceLink::copy : TraceLink::node));
  }
  TILEWIRE_DEVICE void begin(const ChunkMove& move) {
    const Schedule& s = p_.schedule;
    at_ = 0;
    bytes_ = 0;
    if (!move.has_bytes) return;
    bytes_ = static_cast<uint32_t>(s.bytes(move.chunk));
    to_ = space_.half(move.to) + s.offset(move.to, move.chunk);
    if constexpr (kIsOwn) {
      const int32_t pair = s.pair_of(move.chunk);
      row_ = static_cast<int32_t>(s.rows_of(move.chunk).begin);
      head_ = pair % p_.kv_heads;
      batch_ = pair / p_.kv_heads;
    } else {
      from_ = space_.half(s.me()) + s.offset(s.me(), move.chunk);
    }
  }
  // Keys, and behind them values: no piece has both.
  TILEWIRE_DEVICE void give(Piece& piece) {
    const uint32_t half = kIsOwn ? bytes_ / 2 : bytes_, end = at_ < half ? half : bytes_, left = end - at_;
    const uint32_t bytes = left < kCopyPieceBytes ? left : kCopyPieceBytes;
    if constexpr (kIsOwn) {
      const uint32_t line = (at_ < half ? at_ : at_ - half) / static_cast<uint32_t>(p_.line_bytes);
      piece.map = at_ < half ? &p_.copied_k : &p_.copied_v;
      piece.row = row_ + static_cast<int32_t>(line);
      piece.head = head_;
      piece.batch = batch_;
    } else {
      piece.from = from_ + at_;
    }
    piece.to = to_ + at_;
    piece.bytes = bytes;
    at_ += bytes;
    piece.ends_work = at_ == bytes_;
  }

  const FusedParameters& p_;
  const CallSpace& space_;
  Role role_;
  SoloGate gate_;
  TraceLane trace_;
  typename Role::Work work_;
  uint32_t at_ = 0, bytes_ = 0;  // a chunk is below 2^28 bytes: CommandLimits
  std::byte* to_ = nullptr;
  const std::byte* from_ = nullptr;         // not kIsOwn
  int32_t row_ = 0, head_ = 0, batch_ = 0;  // kIsOwn
};

// By one thread, the `worker`-th of so many.
template <bool kIsOwn, class Role>
TILEWIRE_DEVICE void run_copies(const FusedParameters& p, const CallSpace& space, SoloCopy<2>& copy, const Role& role,
                                int32_t number, int32_t worker, int32_t workers, bool by_unit = false) {
  using Dealt = SharedOutRole<Role>;
  copy.run(ChunkWalk<Dealt, kIsOwn>(p, space, Dealt(role, worker, workers, by_unit), number));
}

}  // namespace tilewire::attention
