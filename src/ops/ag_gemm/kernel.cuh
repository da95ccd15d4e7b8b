// The fused kernel of AllGather+GEMM: one launch a rank and call. Entry, role switch, roles; the order of all work is
// that of the iterators of schedule.h.
//
//   CTA 0                 push, and the warps that speak for the rank: call, send, relay
//   CTAs [1, push)        push
//   behind them           forward, where there are several nodes; what is left over of the last cluster has no role
//   the others            compute: clusters of the form, one compute worker each
#pragma once

#include "device/comm/call_warp.cuh"
#include "device/tile/gemm_kernel.cuh"
#include "ops/ag_gemm/device_parameters.cuh"
#include "ops/ag_gemm/device_copy.cuh"

namespace tilewire::ag_gemm {

// Roles in fault records.
constexpr int32_t kCallRole = 1, kComputeRole = 2, kPushRole = 3, kForwardRole = 4, kSendRole = 5;
constexpr uint32_t kSendBarrier = 1;  // of CTA 0

template <class Element>
class BiasEpilogue {
 public:
  static constexpr bool kMayAdd = true;

  TILEWIRE_DEVICE BiasEpilogue(const DeviceBias& bias, const ColumnMap& columns) : bias_(bias), columns_(columns) {}
  TILEWIRE_DEVICE bool adds(const TileWork& w) const { return bias_.data[w.columns.weight] != nullptr; }
  TILEWIRE_DEVICE float addend(const TileWork& w, int32_t col) const {
    const void* bias = bias_.data[w.columns.weight];
    if (col >= columns_.cols[w.columns.weight]) return 0;
    return bias_.is_fp32 ? static_cast<const float*>(bias)[col]
                         : static_cast<float>(static_cast<const Element*>(bias)[col]);
  }

 private:
  const DeviceBias& bias_;
  const ColumnMap& columns_;
};

// By a whole warp.
TILEWIRE_DEVICE void run_send(const CallSpace& space, const SendRole& role) {
  CallGate gate(space, kSendRole);
  CommandPoster ring(space, Ring::send);
  run_signals(space, gate, role, [&](const SendWork& w) { ring.post(gate.waiter(), w.command); });
  ptx::named_barrier_sync(kSendBarrier, 64);
}

// The warps of CTA 0 that copy nothing.
TILEWIRE_DEVICE void run_rank_warps(const FusedParameters& p, const CallSpace& space, CallOver over) {
  const uint32_t warp = threadIdx.x / 32;
  if (warp == 2) {
    run_call(space, DrainRole(p.schedule), static_cast<int32_t>(gridDim.x), p.schedule.own_in_user, kCallRole);
    over.tell();
  }
  if (warp == 3) run_send(space, SendRole(p.schedule));
  if (warp == 4) run_relay(space, over);
}

TILEWIRE_DEVICE void run_comm_cta(const FusedParameters& p, const CallSpace& space, const void* memory) {
  const CopyRing ring(memory);
  const CallOver over(ptx::shared_address(memory) + CopyRing::kSharedBytes);
  if (threadIdx.x == 0) {
    ring.init();
    over.init();
  }
  __syncthreads();
  const int32_t cta = static_cast<int32_t>(blockIdx.x);
  if (cta < p.schedule.push_workers) {
    run_copies(p, space, ring, PushRole(p.schedule, cta), kPushRole);
  } else if (cta < p.schedule.push_workers + p.forward_ctas) {
    run_copies(p, space, ring, ForwardRole(p.schedule), kForwardRole);
  }
  if (cta == 0) run_rank_warps(p, space, over);
  if (threadIdx.x / 32 != 1) return;
  __syncwarp();
  if (cta == 0) ptx::named_barrier_sync(kSendBarrier, 64);  // finished when everything to send is in the ring, too
  if (threadIdx.x == 32) space.publish_finished();
}

template <class Config>
TILEWIRE_DEVICE void run_compute_cta(const FusedParameters& p, const CallSpace& space, const void* memory) {
  using Shared = SharedTiles<typename Config::Form>;
  const int32_t worker = Shared::worker() - p.comm_ctas / FormPlan<typename Config::Form>::kClusterCtas;
  const TileMapView maps{p.gathered[ArenaLayout::half_of(space.epoch())], p.b, p.d,
                         p.schedule.grid.tiles() > 0 ? p.schedule.columns.weights : 0};
  run_gemm_roles<Config>(Shared(memory), maps, ComputeRole(p.schedule, worker), CallGate(space, kComputeRole),
                         p.stages_per_tile, BiasEpilogue<typename Config::Element>(p.bias, p.schedule.columns));
  __syncthreads();
  if (threadIdx.x == 0) space.publish_finished();
}

template <class Config>
__global__ void __launch_bounds__(kGemmThreads, 1) fused_kernel(const __grid_constant__ FusedParameters p) {
  static_assert(CopyRing::kSharedBytes + CallOver::kSharedBytes <= FormPlan<typename Config::Form>::kSharedBytes);
  extern __shared__ __align__(1024) uint8_t memory[];
  const CallSpace space(p.schedule.frame, p.call);
  if (static_cast<int32_t>(blockIdx.x) < p.comm_ctas) {
    run_comm_cta(p, space, memory);
  } else {
    run_compute_cta<Config>(p, space, memory);
  }
}

}  // namespace tilewire::ag_gemm
