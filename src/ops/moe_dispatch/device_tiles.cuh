// The compute role on a GPU: the walk of the threads that follow it, where operands lie, and where the rows of a tile go.
#pragma once

#include "device/comm/call_view.cuh"
#include "device/tile/store.cuh"
#include "ops/moe_dispatch/device_parameters.cuh"
#include "ops/moe_dispatch/device_rows.cuh"
#include "ops/moe_dispatch/row_moves.h"

namespace tilewire::moe_dispatch {

// Tiles alone, behind the gate of the role. A computing group that comes to the end of a round has read its last rows of it:
// the last one of the rank frees the slot, which is the release role.
// Tables::sees_tables(): whether there are tables to walk by; otherwise there are no tiles.
template <class Tables>
class TileWalk {
 public:
  using Work = TileWork;
  TILEWIRE_DEVICE TileWalk(const FusedParameters& p, const CallSpace& space, int32_t worker, const Tables& tables)
      : p_(p), space_(space), tables_(tables), role_(ComputeRole(p.schedule, worker)) {}

  TILEWIRE_DEVICE bool next(Work& w) {
    if (state_ == State::fresh) state_ = tables_.sees_tables() ? State::walking : State::none;
    while (state_ == State::walking && role_.next(w)) {
      if (!w.is_round_end) return true;
      if (threadIdx.x >= kWarpgroupThreads && threadIdx.x % kWarpgroupThreads == 0) leave_round(w.round);
    }
    return false;
  }
  TILEWIRE_DEVICE Need need(const Work& w, int32_t i) const { return role_.need(w, i); }

 private:
  TILEWIRE_DEVICE void leave_round(int32_t round) const {
    if (!is_last_part(p_.scratch.taken + round, kComputeGroups * static_cast<int32_t>(gridDim.x))) return;
    const ReleaseRole role(p_.schedule);
    ReleaseWork w;
    w.round = round;
    for (int32_t i = 0; i < p_.schedule.width(); ++i) space_.publish(role.publish(w, i));
  }

  const FusedParameters& p_;
  const CallSpace& space_;
  const Tables& tables_;
  BehindGate<ComputeRole> role_;
  enum class State : uint8_t { fresh, walking, none } state_ = State::fresh;
};

// See IsStoredByGroup: each row of a tile goes to a row of its own of the result, by threads that write 16 bytes each; those
// past the rows of the expert go nowhere. The first tile of a row also says whose it is.
template <class Form>
class ResultTarget {
 public:
  static constexpr int32_t kTableBytes = Form::kRows * 4;  // of a computing group

  // `table`: shared memory of the group.
  TILEWIRE_DEVICE ResultTarget(const FusedParameters& p, const CallSpace& space, const TileWork& w, uint32_t table)
      : p_(p), space_(space), w_(w), table_(table) {}

  TILEWIRE_DEVICE void begin(TileOrigin at) {
    first_row_ = at.row;
    const auto i = static_cast<int32_t>(threadIdx.x % kWarpgroupThreads);
    if (i >= Form::kRows) return;
    const int64_t row = int64_t{at.row} + i;
    int32_t to = -1;
    if (row < w_.rows.end) {
      const Schedule& s = p_.schedule;
      const ResultRow result = result_of(s, w_, row);
      if (result.result < p_.results.rows) to = static_cast<int32_t>(result.result);
      if (at.col == 0 && to >= 0) {
        const auto* from =
            reinterpret_cast<const RowOrigin*>(space_.half(s.me()) + s.buffers.origins_offset(w_.round, row));
        const RowOrigin origin = *from;
        int32_t* origins = p_.results.origins + 3 * result.result;
        origins[0] = s.source_at[result.position].value;
        origins[1] = origin.token;
        origins[2] = origin.slot;
      }
    }
    ptx::store_shared(table_ + 4 * i, static_cast<uint32_t>(to));
  }

  TILEWIRE_DEVICE void store(uint32_t box, TileOrigin at) const {
    constexpr int32_t kPieces = Form::kBoxCols * kElementBytes / 16;  // of a row of the box
    const auto thread = static_cast<int32_t>(threadIdx.x % kWarpgroupThreads);
    const int32_t piece = thread % kPieces;
    const int64_t col = int64_t{at.col} + piece * 8, left = p_.results.cols - col;
    if (left <= 0) return;
#pragma unroll
    for (int32_t i = 0; i < kMmaRows * kPieces / kWarpgroupThreads; ++i) {
      const int32_t row = thread / kPieces + i * (kWarpgroupThreads / kPieces);
      const auto to = static_cast<int32_t>(ptx::load_shared(table_ + 4 * (at.row - first_row_ + row)));
      if (to < 0) continue;
      const int32_t swizzle = Form::kBoxCols == 64 ? row % 8 : row / 2 % 4;
      const uint4 values = ptx::load_shared_quad(box + row * (kPieces * 16) + (piece ^ swizzle) * 16);
      std::byte* out = p_.results.out + to * p_.results.pitch_bytes + col * kElementBytes;
      if (left >= 8) {
        *reinterpret_cast<uint4*>(out) = values;
      } else {
        store_part(reinterpret_cast<uint16_t*>(out), values, static_cast<int32_t>(left));
      }
    }
  }

 private:
  TILEWIRE_DEVICE static void store_part(uint16_t* out, const uint4& values, int32_t count) {
    const uint32_t pairs[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
    for (int32_t i = 0; i < 8; ++i) {
      if (i < count) out[i] = static_cast<uint16_t>(pairs[i / 2] >> 16 * (i % 2));
    }
  }

  const FusedParameters& p_;
  const CallSpace& space_;
  const TileWork& w_;
  uint32_t table_;
  int32_t first_row_ = 0;
};

// See TileMaps.
template <class Form>
class ExpertMaps {
 public:
  // `tables`: shared memory of ResultTarget for each computing group.
  TILEWIRE_DEVICE ExpertMaps(const FusedParameters& p, const CallSpace& space, uint32_t tables)
      : p_(p), space_(space), tables_(tables) {}

  TILEWIRE_DEVICE const CUtensorMap* a_of(const TileWork& w, int32_t& row) const {
    const Buffers& buffers = p_.schedule.buffers;
    row += static_cast<int32_t>(w.round % buffers.window * buffers.slot_rows);
    return p_.rows + ArenaLayout::half_of(space_.epoch());
  }
  TILEWIRE_DEVICE SlotOfMap b_of(const TileWork& w) const { return {&p_.w, w.expert}; }
  TILEWIRE_DEVICE ResultTarget<Form> target(const TileWork& w) const {
    const uint32_t group = threadIdx.x / kWarpgroupThreads - 1;
    return {p_, space_, w, tables_ + group * ResultTarget<Form>::kTableBytes};
  }
  TILEWIRE_DEVICE void prefetch() const {
    ptx::prefetch_tensor_map(p_.rows + ArenaLayout::half_of(space_.epoch()));
    ptx::prefetch_tensor_map(&p_.w);
  }

 private:
  const FusedParameters& p_;
  const CallSpace& space_;
  uint32_t tables_;
};

}  // namespace tilewire::moe_dispatch
