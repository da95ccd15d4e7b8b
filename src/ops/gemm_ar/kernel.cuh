// The fused kernel of GEMM+AllReduce, in both forms: one launch a rank and call. Entry, role switch, roles; the order of all
// work is that of the iterators of schedule.h and one_shot_roles.h.
//
// All CTAs compute, in clusters of the form that take works when they are free: a tile goes from the epilogue into its slot at
// the rail partner of its owner, or in one shot into that at each rank of the node. Beside the tiles, in warps 2 and 3 of
// the first warpgroup, are those that speak for the rank, warp 3 of the first three CTAs, and helpers that add up and copy:
// who does what says HelperDeal.
#pragma once

#include "device/reduction/fused_reduction.cuh"
#include "device/reduction/result_slots.cuh"
#include "ops/gemm_ar/device_parameters.cuh"
#include "ops/gemm_ar/helper_deal.h"

namespace tilewire::gemm_ar {

TILEWIRE_DEVICE TraceNote note_of(int64_t chunk, int32_t source, int64_t bytes, int32_t role, TraceLink link) {
  return {.work = chunk,
          .source = source,
          .bytes = static_cast<uint32_t>(bytes),
          .role = static_cast<uint8_t>(role),
          .link = link};
}

// Where a finished chunk goes beside the caller's result: in two shots into the slots of the node's other ranks, and to
// where it is sent from.
class ResultCopies {
 public:
  TILEWIRE_DEVICE ResultCopies(const FusedParameters& p, const CallSpace& space, const SumWork& w)
      : p_(p),
        space_(space),
        offset_(SumSlots::bytes(w.to)),
        finished_(space.half(p.schedule.me()) + SumSlots::bytes(w.also_to)),
        cols_(w.cols),
        pitch_(SumSlots::pitch_bytes(w.cols, p.result.out_type)) {}

  template <int kCount>
  TILEWIRE_DEVICE void store(const NumberPlace& place, Numbers<kCount>& sum) const {
    if (p_.schedule.is_one_shot) return;
    clear_behind(place, sum);
#pragma unroll 1
    for (int32_t i = 0; i < p_.reduction.width - 1; ++i) {
      store_at(space_.half(Rank{p_.gather.peers[i]}) + offset_, place, sum);
    }
    if (p_.reduction.others > 0) store_at(finished_, place, sum);
  }

 private:
  template <int kCount>
  TILEWIRE_DEVICE void store_at(std::byte* slot, const NumberPlace& place, const Numbers<kCount>& sum) const {
    store_in_slot(slot + place.row * pitch_, place, cols_, sum, p_.result.out_type);
  }

  const FusedParameters& p_;
  const CallSpace& space_;
  int64_t offset_;
  std::byte* finished_;
  int32_t cols_, pitch_;
};

// A helper of a rank: one warp, in one role for the whole call.
class Helper {
 public:
  TILEWIRE_DEVICE Helper(const FusedParameters& p, const CallSpace& space, TracePlace place)
      : p_(p), space_(space), half_(space.half(p.schedule.me())), slots_(half_, p.reduction), place_(place) {}

  TILEWIRE_DEVICE void run(const HelperDeal& deal, int32_t helper) const {
    const int32_t role = deal.role(helper);
    const SumTeam team = deal.team(helper, role == kForwardRole ? 1 : p_.schedule.reduce_workers);
    if (role == kForwardRole) {
      forward(team);
    } else if (role == kCollectRole) {
      collect(team);
    } else if (role == kReduceRole) {
      reduce(team);
    } else {
      finish(team);
    }
  }

 private:
  TILEWIRE_DEVICE void reduce(const SumTeam& team) const {
    run_sums(slots_, space_, p_.reduction.reduce, kReduceRole, team, place_, [&](const SumWork& w, bool is_here) {
      if (!is_here) return;
      if (p_.reduction.is_wide()) {
        add_node_sum<4>(slots_, w, team);
      } else {
        add_node_sum<8>(slots_, w, team);
      }
    });
  }

  TILEWIRE_DEVICE void finish(const SumTeam& team) const {
    run_sums(slots_, space_, p_.reduction.finish, kFinishRole, team, place_, [&](const SumWork& w, bool is_here) {
      const ResultCopies copies(p_, space_, w);
      const auto also = [&](const NumberPlace& place, auto& sum) { copies.store(place, sum); };
      if (p_.reduction.is_wide()) {
        add_owned_sum<4>(slots_, p_.result, w, team, is_here, also);
      } else {
        add_owned_sum<8>(slots_, p_.result, w, team, is_here, also);
      }
    });
  }

  TILEWIRE_DEVICE int32_t result_pitch(const SumWork& w) const {
    return SumSlots::pitch_bytes(w.cols, p_.result.out_type);
  }
  TILEWIRE_DEVICE void collect(const SumTeam& team) const {
    run_moves(
        space_, TabledRole<SumWork>(p_.gather.collect, team.worker), kCollectRole, team, place_,
        [&](const SumWork& w) { return p_.gather.collected + w.counter; },
        [&](const SumWork& w) {
          return note_of(w.number, p_.schedule.me().value, int64_t{w.rows} * result_pitch(w), kCollectRole,
                         TraceLink::copy);
        },
        [&](const SumWork& w, bool is_here) {
          collect_chunk(slots_.at(w.partials), result_pitch(w), p_.result, w.rows, w.cols, w.row, w.col, team, is_here);
        });
  }

  // What came by network, to a rank of the node, where it lies at the same place.
  TILEWIRE_DEVICE void forward(const SumTeam& team) const {
    run_moves(
        space_, TabledRole<MoveWork>(p_.gather.forward, 0), kForwardRole, team, place_,
        [&](const MoveWork& w) { return p_.gather.forwarded + w.counter; },
        [&](const MoveWork& w) {
          return note_of(w.number, w.source, SumSlots::bytes(w.units), kForwardRole, TraceLink::node);
        },
        [&](const MoveWork& w, bool is_here) {
          if (!is_here) return;
          const int64_t at = SumSlots::bytes(w.at);
          copy_slot(space_.half(Rank{w.to}) + at, half_ + at, SumSlots::bytes(w.units), team);
        });
  }

  const FusedParameters& p_;
  const CallSpace& space_;
  std::byte* half_;
  SumSlots slots_;
  TracePlace place_;
};

TILEWIRE_DEVICE void run_sends(const FusedParameters& p, const CallSpace& space) {
  const Schedule& s = p.schedule;
  if (!s.frame.has_network()) return;
  const auto note = [&](const auto& w) {
    return note_of(s.map.global(w.chunk), s.me().value, SumSlots::bytes(w.command.units), kSendRole,
                   TraceLink::network);
  };
  if (s.is_one_shot) {
    run_send<Roles, kSendRole>(space, one_shot::SendRole(s), note);
  } else {
    run_send<Roles, kSendRole>(space, SendRole(s), note);
  }
}

// What the warps of a CTA do beside its tiles.
template <class Form>
class Beside : public BesideTiles<Form, FusedParameters, kComputeRole> {
 public:
  using BesideTiles<Form, FusedParameters, kComputeRole>::BesideTiles;

  TILEWIRE_DEVICE void run(uint32_t warp) const {
    const auto cta = static_cast<int32_t>(blockIdx.x), ctas = static_cast<int32_t>(gridDim.x);
    if (warp == 1) {
      finish_.publish(space_);
    } else if (warp == 3 && cta < kRankWarps) {
      run_rank_warp<Roles>(
          space_, finish_, [&] { run_sends(p_, space_); }, ReductionDrainRole(p_.schedule), false, kCallRole);
    } else {
      const Schedule& s = p_.schedule;
      const HelperDeal deal(s.is_one_shot, s.frame.has_network(), helpers_of(ctas));
      Helper(p_, space_, warp == 2 ? TracePlace::copies : TracePlace::send)
          .run(deal, warp == 2 ? cta : ctas + cta - kRankWarps);
      finish_.arrive();
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

}  // namespace tilewire::gemm_ar
