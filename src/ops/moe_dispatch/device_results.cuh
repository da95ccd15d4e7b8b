// What of the results no tile writes, on a GPU: offsets, and all that lies behind the last row.
#pragma once

#include "ops/moe_dispatch/device_rows.cuh"

namespace tilewire::moe_dispatch {

// By the warps of a team, whole. Zeros behind the last row; NaN there in a call that was given up, and everywhere where
// nothing has moved.
TILEWIRE_DEVICE void finish_results(const FusedParameters& p, const CallSpace& space, const MoveTeam& team,
                                    bool has_tables) {
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const Routing& routing = *p.schedule.routing;
  const DeviceResults& to = p.results;
  const int32_t own = p.schedule.own_experts();
  const bool has_rows = has_tables && routing.overflow_rank.value < 0;
  const uint32_t fill = has_rows && !space.is_aborted() ? 0 : 0xffffffff;
  if (team.part == 0 && to.offsets != nullptr) {
    for (int32_t e = lane; e <= own; e += 32) to.offsets[e] = has_tables ? routing.offsets[e] : 0;
  }
  for (int64_t row = (has_rows ? routing.offsets[own] : 0) + team.part; row < to.rows; row += team.parts) {
    if (lane < 3) to.origins[3 * row + lane] = -1;
    std::byte* out = to.out + row * to.pitch_bytes;
    const int64_t units = to.cols / 8;
    for (int64_t i = lane; i < units; i += 32) reinterpret_cast<uint4*>(out)[i] = {fill, fill, fill, fill};
    for (int64_t i = 8 * units + lane; i < to.cols; i += 32) {
      reinterpret_cast<uint16_t*>(out)[i] = static_cast<uint16_t>(fill);
    }
  }
}

}  // namespace tilewire::moe_dispatch
