// The fused kernel of AllGather+GEMM: one launch a rank and call. Entry, role switch, roles; the order of all work is
// that of the iterators of schedule.h.
//
//   CTAs [0, push_ctas)   push: warp 0 loads, warp 1 stores and publishes; in CTA 0 warp 2 begins and ends the call
//   the others            compute: clusters of the form, one compute worker each
//
// The roles that the network needs stand beside these: send and relay as warps 3 and 4 of CTA 0, forward as CTAs
// behind those of push. FusedKernel refuses more than one node, for which they are needed.
#pragma once

#include "device/comm/call_warp.cuh"
#include "device/tile/gemm_kernel.cuh"
#include "ops/ag_gemm/device_parameters.cuh"
#include "ops/ag_gemm/device_push.cuh"

namespace tilewire::ag_gemm {

// Roles in fault records.
constexpr int32_t kCallRole = 1, kComputeRole = 2;

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

TILEWIRE_DEVICE void run_push_cta(const FusedParameters& p, const CallSpace& space, const void* memory) {
  const CopyRing ring(memory);
  if (threadIdx.x == 0) ring.init();
  __syncthreads();
  const int32_t worker = static_cast<int32_t>(blockIdx.x);
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == 0 && lane == 0) ring.load(PushWalk(p.schedule, space, p.shard, worker));
  if (warp == 1 && lane == 0) {
    ring.store(PushWalk(p.schedule, space, p.shard, worker));
    space.publish_finished();
  }
  if (warp == 2 && blockIdx.x == 0) {
    run_call(space, DrainRole(p.schedule), static_cast<int32_t>(gridDim.x), kCallRole);
  }
}

template <class Config>
TILEWIRE_DEVICE void run_compute_cta(const FusedParameters& p, const CallSpace& space, const void* memory) {
  using Shared = SharedTiles<typename Config::Form>;
  const int32_t worker = Shared::worker() - p.push_ctas / FormPlan<typename Config::Form>::kClusterCtas;
  const TileMapView maps{p.gathered[ArenaLayout::half_of(p.schedule.frame.epoch)], p.b, p.d,
                         p.schedule.grid.tiles() > 0 ? p.schedule.columns.weights : 0};
  run_gemm_roles<Config>(Shared(memory), maps, ComputeRole(p.schedule, worker), CallGate(space, kComputeRole),
                         p.stages_per_tile, BiasEpilogue<typename Config::Element>(p.bias, p.schedule.columns));
  __syncthreads();
  if (threadIdx.x == 0) space.publish_finished();
}

template <class Config>
__global__ void __launch_bounds__(kGemmThreads, 1) fused_kernel(const __grid_constant__ FusedParameters p) {
  static_assert(CopyRing::kSharedBytes <= FormPlan<typename Config::Form>::kSharedBytes);
  extern __shared__ __align__(1024) uint8_t memory[];
  const CallSpace space(p.schedule.frame, p.call);
  if (static_cast<int32_t>(blockIdx.x) < p.push_ctas) {
    run_push_cta(p, space, memory);
  } else {
    run_compute_cta<Config>(p, space, memory);
  }
}

}  // namespace tilewire::ag_gemm
