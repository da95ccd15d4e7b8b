// The plain GEMM: entry, role switch, and what a CTA does before and after its roles.
#pragma once

#include "device/tile/compute.cuh"
#include "device/tile/load.cuh"
#include "device/tile/plain_tiles.h"

namespace tilewire {

template <class FormType, class ElementType, bool kIsBNMajorValue>
struct TileConfig {
  using Form = FormType;
  using Element = ElementType;  // of A, B and D
  static constexpr bool kIsBNMajor = kIsBNMajorValue;
};

struct GemmParameters {
  TileMaps<1> maps;
  PlainTiles tiles;
  int32_t stages_per_tile;  // at least 1
};

// Barriers are ready and known to the whole cluster when this returns.
template <class Form>
TILEWIRE_DEVICE void enter_tiles(const SharedTiles<Form>& shared) {
  using Plan = FormPlan<Form>;
  if (threadIdx.x == 0) {
    shared.clear_mark();
    shared.barriers().init(Plan::kStageReleases);
    shared.permits().init(1);
  }
  __syncwarp();
  if constexpr (Plan::kClusterCtas > 1) {
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  } else {
    __syncthreads();
  }
}

// What the warps of a CTA do beside their roles: nothing.
//   void init()       by one thread, before a barrier of all
//   void begin()      by all computing warps, behind that barrier and before their role; where there is one
//   void run(warp)    by warps 1, 2 and 3; the first one when it has passed its gate for all tiles
//   void computed()   by each computing warp, when its tiles are done
//   trace(group)      by each computing warp: what notes its tiles, see NoTileTrace
struct NothingBeside {
  TILEWIRE_DEVICE void init() const {}
  TILEWIRE_DEVICE void run(uint32_t) const {}
  TILEWIRE_DEVICE void computed() const {}
  TILEWIRE_DEVICE NoTileTrace trace(uint32_t) const { return {}; }
};

// Nobody leaves while the other CTA may write its shared memory or arrive on its barriers.
template <class Form>
TILEWIRE_DEVICE void leave_tiles() {
  if constexpr (FormPlan<Form>::kClusterCtas > 1) {
    __syncwarp();
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
}

// The loading and the computing roles of a kernel of kGemmThreads threads, from entry to exit.
template <class Config, class Maps, class Role, class Gate, class Epilogue = PlainEpilogue,
          class Beside = NothingBeside>
TILEWIRE_DEVICE void run_gemm_roles(const SharedTiles<typename Config::Form>& shared, const Maps& maps,
                                    const Role& role, const Gate& gate, int32_t stages_per_tile,
                                    const Epilogue& epilogue = {}, const Beside& beside = {}) {
  const uint32_t warpgroup = __shfl_sync(0xffffffff, threadIdx.x / kWarpgroupThreads, 0);
  const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  if (threadIdx.x == 32) maps.prefetch();
  if (threadIdx.x == 0) beside.init();
  enter_tiles(shared);
  if (warpgroup == 0) {
    ptx::lower_registers<Config::Form::kLoaderRegisters>();
    if (warp == 0 && ptx::elect_one()) load_tiles<Config, Gate::kWaits>(shared, maps, role, stages_per_tile);
    if constexpr (Gate::kWaits) {
      if (warp == 1) pass_gate(shared, role, gate);
    }
    if (warp >= 1) beside.run(warp);
  } else {
    if constexpr (requires { beside.begin(); }) beside.begin();
    ptx::raise_registers<FormPlan<typename Config::Form>::kComputeRegisters>();
    compute_tiles<Config, Gate::kWaits>(shared, maps, role, epilogue, beside.trace(warpgroup - 1), warpgroup - 1,
                                        stages_per_tile);
    beside.computed();
  }
  leave_tiles<typename Config::Form>();
}

template <class Config>
__global__ void __launch_bounds__(kGemmThreads, 1) gemm_kernel(const __grid_constant__ GemmParameters parameters) {
  using Shared = SharedTiles<typename Config::Form>;
  extern __shared__ __align__(1024) uint8_t memory[];
  const PlainTileRole role(parameters.tiles, Shared::worker());
  run_gemm_roles<Config>(Shared(memory), parameters.maps, role, OpenGate{}, parameters.stages_per_tile);
}

}  // namespace tilewire
