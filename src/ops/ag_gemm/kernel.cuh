// The fused kernel of AllGather+GEMM: one launch a rank and call. Entry, role switch, roles; the order of all work is
// that of the iterators of schedule.h.
//
// CTAs compute, in clusters of the form: each is a compute worker, and those of a cluster have tiles beside each other
// in the order, which share the columns of b. Clusters take tiles when they are free (device/tile/deal.cuh). What moves data and speaks for the rank stands
//   beside them   in warps 2 and 3 of the first warpgroup: warp 2 of each CTA pushes and forwards, warp 3 of the first
//                 three is call, send and relay
//   apart         comm_ctas > 0: in CTAs of their own in front of the others. CTA 0 and more push, one forwards, warps
//                 2, 3 and 4 of CTA 0 are call, send and relay; what is left over of the last cluster has no role
#pragma once

#include "device/comm/rank_warps.cuh"
#include "device/tile/deal.cuh"
#include "device/tile/gemm_kernel.cuh"
#include "ops/ag_gemm/device_copy.cuh"
#include "ops/ag_gemm/device_parameters.cuh"
#include "ops/ag_gemm/roles.h"

namespace tilewire::ag_gemm {

template <class Element>
class BiasEpilogue {
 public:
  static constexpr bool kMayAdd = true;
  static constexpr bool kMayConvert = true;

  TILEWIRE_DEVICE BiasEpilogue(const DeviceBias& bias, const ColumnMap& columns, const OutType& out)
      : bias_(bias), columns_(columns), out_(out) {}
  TILEWIRE_DEVICE OutType out() const { return out_; }
  TILEWIRE_DEVICE bool adds(const TileWork& w) const {
    return bias_.data[w.columns.weight] != nullptr || out_ != OutType::as_operands;
  }
  TILEWIRE_DEVICE float addend(const TileWork& w, int32_t col) const {
    const void* bias = bias_.data[w.columns.weight];
    if (bias == nullptr || col >= columns_.cols[w.columns.weight]) return kNothingAdded;
    return bias_.is_fp32 ? static_cast<const float*>(bias)[col]
                         : static_cast<float>(static_cast<const Element*>(bias)[col]);
  }

 private:
  const DeviceBias& bias_;
  const ColumnMap& columns_;
  const OutType& out_;
};

// The warps that speak for a rank; each by a whole warp.
TILEWIRE_DEVICE void run_call_warp(const FusedParameters& p, const CallSpace& space) {
  run_call<Roles>(space, DrainRole(p.schedule), static_cast<int32_t>(gridDim.x), p.schedule.own_in_user, kCallRole);
}
TILEWIRE_DEVICE void run_send_warp(const FusedParameters& p, const CallSpace& space) {
  run_send<Roles, kSendRole>(space, SendRole(p.schedule), [&](const SendWork& w) {
    return chunk_note(w.chunk, p.schedule.bytes(w.chunk), kSendRole, TraceLink::network);
  });
}

TILEWIRE_DEVICE void run_comm_cta(const FusedParameters& p, const CallSpace& space, const void* memory) {
  constexpr uint32_t kSendBarrier = 1;
  const CopyRing ring(memory);
  if (threadIdx.x == 0) ring.init();
  __syncthreads();
  const int32_t cta = static_cast<int32_t>(blockIdx.x), push_ctas = p.schedule.push_workers;
  const uint32_t warp = threadIdx.x / 32;
  if (cta < push_ctas) run_copies(p, space, ring, PushRole(p.schedule, cta), kPushRole);
  if (cta == push_ctas && p.schedule.frame.has_network()) {
    run_copies(p, space, ring, ForwardRole(p.schedule), kForwardRole);
  }
  if (cta == 0 && warp == 2) run_call_warp(p, space);
  if (cta == 0 && warp == 3) run_send_warp(p, space);
  if (cta == 0 && warp == 4) run_relay(space);
  // Finished when everything to send is in its ring, too.
  if (warp != 1 && warp != 3) return;
  __syncwarp();
  ptx::named_barrier_sync(kSendBarrier, 64);
  if (threadIdx.x == 32) space.publish_finished();
}

// What the warps of a computing CTA do beside its tiles.
template <class Form>
class Beside {
 public:
  TILEWIRE_DEVICE Beside(const FusedParameters& p, const CallSpace& space, const SharedTiles<Form>& shared)
      : p_(p),
        space_(space),
        copy_(shared.spare(), p.pace_clocks),
        finish_(shared.spare() + Copy::kSharedBytes),
        deal_(shared.spare() + Copy::kSharedBytes + CtaFinish::kSharedBytes) {
    static_assert(Copy::kSharedBytes + CtaFinish::kSharedBytes + DealRing::kSharedBytes <= Form::kSpareBytes);
    static_assert(DealRing::kFits<Form::kStages>);
  }

  TILEWIRE_DEVICE void init() const {
    copy_.init();
    finish_.init();
    deal_.init((blockIdx.x - static_cast<uint32_t>(p_.comm_ctas)) / FormPlan<Form>::kClusterCtas);
  }
  TILEWIRE_DEVICE DealRing deal() const { return deal_; }
  TILEWIRE_DEVICE void computed() const { finish_.arrive(); }
  TILEWIRE_DEVICE TileTrace trace(uint32_t group) const { return {space_, group, kComputeRole}; }
  TILEWIRE_DEVICE void run(uint32_t warp) const {
    if (warp == 1) {
      finish_.publish(space_);
    } else if (p_.comm_ctas > 0) {
      finish_.arrive();
    } else if (warp == 2) {
      run_copies_of_this_cta();
      finish_.arrive();
    } else {
      run_rank_warp<Roles>(
          space_, finish_, [&] { run_send_warp(p_, space_); }, DrainRole(p_.schedule), p_.schedule.own_in_user,
          kCallRole);
    }
  }

 private:
  using Copy = SoloCopy<Form::kCopyStages>;

  TILEWIRE_DEVICE void run_copies_of_this_cta() const {
    if (threadIdx.x % 32 != 0) return;
    const auto cta = static_cast<int32_t>(blockIdx.x);
    Copy copy = copy_;
    copy.start_after(p_.pace_clocks / gridDim.x * blockIdx.x);
    run_copies_alone(p_, space_, copy, PushRole(p_.schedule, cta), kPushRole);
    if (p_.schedule.frame.has_network()) {
      run_copies_alone(p_, space_, copy, ForwardRole(p_.schedule, cta), kForwardRole);
    }
  }
  const FusedParameters& p_;
  const CallSpace& space_;
  Copy copy_;
  CtaFinish finish_;
  DealRing deal_;
};

template <class Config>
TILEWIRE_DEVICE void run_compute_cta(const FusedParameters& p, const CallSpace& space, const void* memory) {
  using Form = typename Config::Form;
  using Shared = SharedTiles<Form>;
  constexpr int32_t kCtas = FormPlan<Form>::kClusterCtas;
  static_assert(FormPlan<Form>::kClusterColTiles == 1);
  const Shared shared(memory);
  const Beside<Form> beside(p, space, shared);
  const DealtRole<ComputeRole, kCtas> role(ComputeRole(p.schedule, 0), p.counter, beside.deal());
  const TileMapView maps{p.gathered[ArenaLayout::half_of(space.epoch())],
                         p.input,
                         static_cast<int32_t>(p.schedule.chunks.row_begin[p.schedule.me().value]),
                         p.b,
                         p.d,
                         p.schedule.grid.tiles() > 0 ? p.schedule.columns.weights : 0};
  run_gemm_roles<Config>(shared, maps, role, CallGate(space, kComputeRole, kTilePauseNs), p.stages_per_tile,
                         BiasEpilogue<typename Config::Element>(p.bias, p.schedule.columns, p.out), beside);
}

template <class Config>
__global__ void __launch_bounds__(kGemmThreads, 1) fused_kernel(const __grid_constant__ FusedParameters p) {
  static_assert(CopyRing::kSharedBytes <= FormPlan<typename Config::Form>::kSharedBytes);
  extern __shared__ __align__(1024) uint8_t memory[];
  const CallSpace space(p.schedule.frame, p.call);
  if (static_cast<int32_t>(blockIdx.x) < p.comm_ctas) {
    run_comm_cta(p, space, memory);
  } else {
    run_compute_cta<Config>(p, space, memory);
  }
}

}  // namespace tilewire::ag_gemm
