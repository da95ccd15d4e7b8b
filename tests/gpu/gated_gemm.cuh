// The GEMM kernel behind a flag for each row block of a work: what the compute role of a fused operation does.
#pragma once

#include "device_buffer.cuh"

#include "device/tile/flag_gate.cuh"
#include "device/tile/gemm.cuh"
#include "device/tile/gemm_kernel.cuh"
#include "device/tile/tile_launch.cuh"

#include <algorithm>
#include <cstring>

namespace tilewire {

// Plain tiles of which each needs the flag of its row block.
class GatedTileRole : public PlainTileRole {
 public:
  TILEWIRE_HD constexpr GatedTileRole(const PlainTiles& tiles, int32_t worker)
      : PlainTileRole(tiles, worker), rows_(tiles.grid.tile_rows) {}
  TILEWIRE_HD constexpr bool next(Work& w) {
    w.needs = 1;
    return PlainTileRole::next(w);
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t) const {
    return {static_cast<uint32_t>(w.rows.begin / rows_), 0};
  }

 private:
  int32_t rows_;
};

struct GatedParameters {
  GemmParameters gemm;
  WaitLimits limits;
  const uint64_t* flags;
  Epoch epoch;
};

constexpr int32_t kGatedRole = 4;

template <class Config>
__global__ void __launch_bounds__(kGemmThreads, 1) gated_gemm_kernel(const __grid_constant__ GatedParameters p) {
  using Shared = SharedTiles<typename Config::Form>;
  extern __shared__ __align__(1024) uint8_t memory[];
  const GatedTileRole role(p.gemm.tiles, Shared::worker());
  run_gemm_roles<Config>(Shared(memory), p.gemm.maps, role, FlagGate(p.limits, p.flags, kGatedRole, p.epoch),
                         p.gemm.stages_per_tile);
}

// bf16, B as [N, K].
inline const void* gated_kernel(const FormNumbers& form) {
  const auto is = [&](const char* name) { return std::strcmp(form.name, name) == 0; };
  using E = __nv_bfloat16;
  if (is(Cooperative128x256::kName)) {
    return reinterpret_cast<const void*>(&gated_gemm_kernel<TileConfig<Cooperative128x256, E, false>>);
  }
  if (is(PingPong128x192::kName)) {
    return reinterpret_cast<const void*>(&gated_gemm_kernel<TileConfig<PingPong128x192, E, false>>);
  }
  if (is(PingPong128x128::kName)) {
    return reinterpret_cast<const void*>(&gated_gemm_kernel<TileConfig<PingPong128x128, E, false>>);
  }
  return reinterpret_cast<const void*>(&gated_gemm_kernel<TileConfig<PingPong64x128, E, false>>);
}

// Flags are here when they have reached `epoch`.
inline void launch_gated(const Gemm& gemm, const WaitLimits& limits, const uint64_t* flags, Epoch epoch,
                         cudaStream_t stream) {
  const void* kernel = gated_kernel(gemm.form());
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, gemm.form().shared_bytes),
             "asking for shared memory");
  GatedParameters parameters{gemm.parameters(), limits, flags, epoch};
  launch_tile_kernel(kernel, gemm.form(), gemm.ctas(), &parameters, stream);
}

}  // namespace tilewire
