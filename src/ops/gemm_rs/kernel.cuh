// The fused kernel of GEMM+ReduceScatter: one launch a rank and call. Entry, role switch, roles; the order of all work is
// that of the iterators of schedule.h.
//
// All CTAs compute, in clusters of the form that take works when they are free: a tile goes from the epilogue into its slot at
// the rail partner of its owner. What adds up and speaks for the rank stands beside them, in warps 2 and 3 of the first
// warpgroup: warp 3 of the first three CTAs is call, send and relay; that of the others is finish. Warp 2 is reduce, and
// finish where there is no other node.
#pragma once

#include "device/reduction/fused_reduction.cuh"
#include "device/reduction/sum_warps.cuh"
#include "ops/gemm_rs/device_parameters.cuh"
#include "ops/gemm_rs/roles.h"

namespace tilewire::gemm_rs {

TILEWIRE_DEVICE void run_reduce(const FusedParameters& p, const CallSpace& space, const SumTeam& team) {
  const SumSlots slots(space.half(p.schedule.me()), p.reduction);
  run_sums(slots, space, p.reduction.reduce, kReduceRole, team, TracePlace::copies,
           [&](const SumWork& w, bool is_here) {
             if (!is_here) return;
             if (p.reduction.is_wide()) {
               add_node_sum<4>(slots, w, team);
             } else {
               add_node_sum<8>(slots, w, team);
             }
           });
}

TILEWIRE_DEVICE void run_finish(const FusedParameters& p, const CallSpace& space, const SumTeam& team,
                                TracePlace place) {
  const SumSlots slots(space.half(p.schedule.me()), p.reduction);
  const auto nothing_else = [](const auto&, const auto&) {};
  run_sums(slots, space, p.reduction.finish, kFinishRole, team, place, [&](const SumWork& w, bool is_here) {
    if (p.reduction.is_wide()) {
      add_owned_sum<4>(slots, p.result, w, team, is_here, nothing_else);
    } else {
      add_owned_sum<8>(slots, p.result, w, team, is_here, nothing_else);
    }
  });
}

TILEWIRE_DEVICE void run_sends(const FusedParameters& p, const CallSpace& space) {
  if (!p.schedule.frame.has_network()) return;
  run_send<Roles, kSendRole>(space, SendRole(p.schedule), [&](const SendWork& w) {
    return TraceNote{.work = p.schedule.map.global(w.chunk),
                     .source = p.schedule.me().value,
                     .bytes = static_cast<uint32_t>(p.schedule.sum_bytes(w.chunk)),
                     .role = kSendRole,
                     .link = TraceLink::network};
  });
}

// The warps beside the tiles of a rank that add up.
class SumTeams {
 public:
  TILEWIRE_DEVICE explicit SumTeams(const Schedule& s) : s_(s) {}

  TILEWIRE_DEVICE SumTeam reduce() const { return sum_team(cta(), ctas(), s_.reduce_workers); }
  // By warp 3 of a CTA behind the first ones, or by any warp 2 where none reduces.
  TILEWIRE_DEVICE SumTeam finish(uint32_t warp) const {
    const bool has_network = s_.frame.has_network();
    const int32_t fourth = ctas() - kRankWarps, member = warp == 3 ? cta() - kRankWarps : fourth + cta();
    return sum_team(member, fourth + (has_network ? 0 : ctas()), s_.reduce_workers);
  }

 private:
  TILEWIRE_DEVICE static int32_t cta() { return static_cast<int32_t>(blockIdx.x); }
  TILEWIRE_DEVICE static int32_t ctas() { return static_cast<int32_t>(gridDim.x); }

  const Schedule& s_;
};

// What the warps of a CTA do beside its tiles.
template <class Form>
class Beside : public BesideTiles<Form, FusedParameters, kComputeRole> {
 public:
  using BesideTiles<Form, FusedParameters, kComputeRole>::BesideTiles;

  TILEWIRE_DEVICE void run(uint32_t warp) const {
    if (warp == 1) {
      finish_.publish(space_);
    } else if (warp == 2 && p_.schedule.frame.has_network()) {
      run_reduce(p_, space_, SumTeams(p_.schedule).reduce());
      finish_.arrive();
    } else if (warp == 2 || blockIdx.x >= kRankWarps) {
      run_finish(p_, space_, SumTeams(p_.schedule).finish(warp), warp == 2 ? TracePlace::copies : TracePlace::send);
      finish_.arrive();
    } else {
      run_rank_warp<Roles>(
          space_, finish_, [&] { run_sends(p_, space_); }, DrainRole(p_.schedule), false, kCallRole);
    }
  }

 private:
  using BesideTiles<Form, FusedParameters, kComputeRole>::p_;
  using BesideTiles<Form, FusedParameters, kComputeRole>::space_;
  using BesideTiles<Form, FusedParameters, kComputeRole>::finish_;
};

template <class Config>
__global__ void __launch_bounds__(kGemmThreads, 1) fused_kernel(const __grid_constant__ FusedParameters p) {
  run_reduction<Config, kComputeRole, Beside>(p);
}

}  // namespace tilewire::gemm_rs
