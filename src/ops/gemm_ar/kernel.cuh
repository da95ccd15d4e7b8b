// The fused kernel of GEMM+AllReduce, in both forms: one launch a rank and call. Entry, role switch, roles; the order of all
// work is that of the iterators of schedule.h and one_shot_roles.h.
//
// All CTAs compute, in clusters of the form with one compute worker each: a tile goes from the epilogue into its slot at
// the rail partner of its owner, or in one shot into that at each rank of the node. Beside the tiles, in warps 2 and 3 of
// the first warpgroup, are those that speak for the rank, warp 3 of the first three CTAs, and helpers that add up and copy:
// who does what says HelperDeal.
#pragma once

#include "device/reduction/fused_reduction.cuh"
#include "device/reduction/result_slots.cuh"
#include "ops/gemm_ar/device_parameters.cuh"
#include "ops/gemm_ar/either_form.h"
#include "ops/gemm_ar/helper_deal.h"

namespace tilewire::gemm_ar {

TILEWIRE_DEVICE TraceNote note_of(const Schedule& s, OwnedChunk c, Rank source, int64_t bytes, int32_t role,
                                  TraceLink link) {
  return {.work = s.map.global(c),
          .source = source.value,
          .bytes = static_cast<uint32_t>(bytes),
          .role = static_cast<uint8_t>(role),
          .link = link};
}

// A helper of a rank: one warp, in one role for the whole call.
class Helper {
 public:
  TILEWIRE_DEVICE Helper(const FusedParameters& p, const CallSpace& space, TracePlace place)
      : p_(p), s_(p.schedule), space_(space), slots_(p.schedule, space, p.reduction), place_(place) {}

  TILEWIRE_DEVICE void run(const HelperDeal& deal, int32_t helper) const {
    const int32_t role = deal.role(helper);
    if (role == kForwardRole) {
      const SumTeam all = deal.team(helper, 1);
      s_.is_one_shot ? forward_sums(all) : forward_results(all);
      return;
    }
    const SumTeam team = deal.team(helper, s_.reduce_workers);
    if (role == kCollectRole) {
      collect(team);
    } else if (role == kReduceRole) {
      reduce(team);
    } else {
      finish(team);
    }
  }

 private:
  TILEWIRE_DEVICE bool is_wide() const { return tilewire::is_wide(p_.reduction, s_.other_nodes() > 0); }

  TILEWIRE_DEVICE void reduce(const SumTeam& team) const {
    run_sums(slots_, space_, EitherReduceRole(s_, team.worker), kReduceRole, team, place_,
             [&](OwnedChunk c, bool is_here) {
               if (!is_here) return;
               if (is_wide()) {
                 add_node_sum<4>(slots_, c, team);
               } else {
                 add_node_sum<8>(slots_, c, team);
               }
             });
  }

  TILEWIRE_DEVICE void finish(const SumTeam& team) const {
    run_sums(slots_, space_, EitherFinishRole(s_, team.worker), kFinishRole, team, place_,
             [&](OwnedChunk c, bool is_here) {
               if (is_wide()) {
                 add_result<4>(c, team, is_here);
               } else {
                 add_result<8>(c, team, is_here);
               }
             });
  }
  // In two shots the result goes to the other ranks, too: to those of the node, and to where it is sent from.
  template <int kCount>
  TILEWIRE_DEVICE void add_result(OwnedChunk c, const SumTeam& team, bool is_here) const {
    const auto first_row = static_cast<int32_t>(s_.map.rows(c).begin);
    const auto cols = static_cast<int32_t>(s_.map.columns(c).cols());
    const int32_t pitch = slots_.pitch_bytes(c, s_.result_bytes);
    add_owned_sum<kCount, 1>(slots_, p_.result, c, first_row, team, is_here,
                             [&](const NumberPlace& place, Numbers<kCount>& sum) {
                               if (s_.is_one_shot) return;
                               clear_behind(place, sum);
                               const auto store = [&](std::byte* slot) {
                                 store_in_slot(slot + place.row * pitch, place, cols, sum, p_.result.out_type);
                               };
#pragma unroll 1
                               for (int32_t i = 0; i < s_.width() - 1; ++i) {
                                 store(space_.half(s_.topology().local_peer(s_.me(), i)) + s_.result_offset(c));
                               }
                               if (s_.other_nodes() > 0) store(space_.half(s_.me()) + s_.finished_offset(c));
                             });
  }

  TILEWIRE_DEVICE void collect(const SumTeam& team) const {
    const CollectRole role(s_, team.worker);
    run_moves(
        space_, role, kCollectRole, team, place_,
        [&](const CollectWork& w, int32_t) { return p_.gather.collected + s_.map.global(w.chunk); },
        [&](const CollectWork& w) {
          return note_of(s_, w.chunk, s_.me(), s_.result_chunk_bytes(w.chunk), kCollectRole, TraceLink::copy);
        },
        [&](const CollectWork& w, bool is_here) {
          const RowRange rows = s_.map.rows(w.chunk);
          const ColumnRange columns = s_.map.columns(w.chunk);
          collect_chunk(space_.half(s_.me()) + s_.result_offset(w.chunk), slots_.pitch_bytes(w.chunk, s_.result_bytes),
                        p_.result, static_cast<int32_t>(rows.rows()), static_cast<int32_t>(columns.cols()),
                        static_cast<int32_t>(rows.begin), static_cast<int32_t>(columns.begin), team, is_here);
        });
  }

  // What came by network, to a rank of the node, where it lies at the same place.
  TILEWIRE_DEVICE void forward_results(const SumTeam& team) const {
    forward<ForwardRole>(
        team, [](const ForwardWork& w) { return w.chunk.owner; },
        [&](const ForwardWork& w) { return s_.result_offset(w.chunk); },
        [&](const ForwardWork& w) { return s_.result_chunk_bytes(w.chunk); });
  }
  TILEWIRE_DEVICE void forward_sums(const SumTeam& team) const {
    forward<one_shot::ForwardRole>(
        team, [](const one_shot::ForwardWork& w) { return w.adder; },
        [&](const one_shot::ForwardWork& w) { return s_.received_offset(s_.topology().node(w.adder), w.chunk); },
        [&](const one_shot::ForwardWork& w) { return s_.sum_bytes(w.chunk); });
  }
  template <class Role, class SourceOf, class OffsetOf, class BytesOf>
  TILEWIRE_DEVICE void forward(const SumTeam& team, const SourceOf& source_of, const OffsetOf& offset_of,
                               const BytesOf& bytes_of) const {
    using Work = typename Role::Work;
    run_moves(
        space_, Role(s_), kForwardRole, team, place_,
        [&](const Work&, int32_t number) { return p_.gather.forwarded + number; },
        [&](const Work& w) { return note_of(s_, w.chunk, source_of(w), bytes_of(w), kForwardRole, TraceLink::node); },
        [&](const Work& w, bool is_here) {
          if (is_here)
            copy_slot(space_.half(w.to) + offset_of(w), space_.half(s_.me()) + offset_of(w), bytes_of(w), team);
        });
  }

  const FusedParameters& p_;
  const Schedule& s_;
  const CallSpace& space_;
  SumSlots<Schedule> slots_;
  TracePlace place_;
};

TILEWIRE_DEVICE void run_sends(const FusedParameters& p, const CallSpace& space) {
  const Schedule& s = p.schedule;
  if (!s.frame.has_network()) return;
  const auto note = [&](const auto& w) {
    return note_of(s, w.chunk, s.me(), int64_t{w.command.units} * kWireUnitBytes, kSendRole, TraceLink::network);
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
  run_reduction<Config, TileRole, kComputeRole, Beside>(p);
}

}  // namespace tilewire::gemm_ar
